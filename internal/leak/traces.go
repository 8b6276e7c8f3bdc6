package leak

import (
	"regexp"
	"strings"
)

// lineBreak is how a line ends, also in a text that shows another text with its escapes.
const lineBreak = `(?:\r?\n|\\r\\n|\\n)`

// The parts of stack traces that are known by themselves, wherever they begin in a line, and sourceLine: a source file
// with a line, of any language.
var (
	goFrame    = regexp.MustCompile(`goroutine [0-9]+ (?:gp=\S+ m=\S+ (?:mp=\S+ )?)?\[[^\]\n]+\]:|created by [\w./*()-]+(?: in goroutine [0-9]+)?`)
	pyFile     = regexp.MustCompile(`File \\?"[^"\n\\]+\\?", line [0-9]+(?:, in [^\n\\]+)?|Traceback \(most recent call last\):`)
	javaFrame  = regexp.MustCompile(`\bat (?:[\w.]+/{1,2})?[\w.$<>]+\((?:[\w$]+\.(?:java|kt|scala|groovy|clj)(?::[0-9]+)?|Native Method|Unknown Source)\)(?: ~?\[[^\]\n]+\])?|\.\.\. [0-9]+ (?:more|common frames omitted)`)
	nodeFrame  = regexp.MustCompile(`\bat (?:async |new )?(?:[\w.$<>\[\] ]+ )?\(?(?:file://|node:|webpack:|/|[A-Za-z]:\\)[^\s()]+:[0-9]+:[0-9]+\)?`)
	netFrame   = regexp.MustCompile("\\bat [\\w.<>`\\[\\],+|]+\\([^)\\n]*\\) in [^\\n]+?:line [0-9]+|--- End of (?:inner exception )?stack trace(?: from previous location(?: where exception was thrown)?)? ---")
	sourceLine = regexp.MustCompile(`(?:[A-Za-z]:[\\/]|\.{0,2}/)[^\s:"'()<>|*?]+\.(?:go|py|pyx|js|mjs|cjs|jsx|ts|tsx|java|kt|scala|cs|fs|vb|rb|php|rs|c|cc|cpp|h|hpp|ex|swift)(?::[0-9]+){1,2}(?: \+0x[0-9a-f]+)?`)
	extension  = regexp.MustCompile(`\.[a-z]{1,5}:[0-9]`)
	// dotNet matches frames of .NET without a place in a file. They are looked for line by line, since in a
	// sentence "at the bank (closed)" would be one.
	dotNet = regexp.MustCompile(`^\s+at [\w<>` + "`" + `]+(?:\.[\w<>` + "`" + `\[\],+|]+)+\([^)]*\)\s*$`)
	// goCall is the first line of a frame of Go; the file is in the next.
	goCall   = regexp.MustCompile(`^[\w./*()\[\]\x{B7}{}-]+\(.*\)\s*$`)
	goPlace  = regexp.MustCompile(`^\s+\S+\.go:[0-9]+(?: \+0x[0-9a-f]+)?\s*$`)
	pyFrame  = regexp.MustCompile(`^\s*File "[^"]+", line [0-9]+`)
	pyCode   = regexp.MustCompile(`^(?:    |\t)\s*\S`)
	splitter = regexp.MustCompile(lineBreak)
)

// findTraces looks for stack traces and paths of source files with a line number.
func findTraces(text string, add func(from, to int, kind Kind)) {
	find := func(re *regexp.Regexp) {
		for _, m := range re.FindAllStringIndex(text, -1) {
			add(m[0], m[1], StackTrace)
		}
	}
	if hasAny(text, "goroutine ", "created by ") {
		find(goFrame)
	}
	if hasAny(text, ", line ", "Traceback") {
		find(pyFile)
	}
	if hasAny(text, ".java", ".kt", ".scala", ".groovy", ".clj", "Native Method", "Unknown Source", " more", " common frames") {
		find(javaFrame)
	}
	if hasAny(text, ":line ", "--- End of ") {
		find(netFrame)
	}
	if strings.Contains(text, ":") && extension.MatchString(text) || hasAny(text, "node:", "file://", "webpack:") {
		find(nodeFrame)
		find(sourceLine)
	}
	if !strings.Contains(text, "\n") {
		return
	}
	type line struct{ from, to int }
	var lines []line
	from := 0
	for _, m := range splitter.FindAllStringIndex(text, -1) {
		lines = append(lines, line{from, m[0]})
		from = m[1]
	}
	lines = append(lines, line{from, len(text)})
	python := false // the line before is of a frame of Python
	for i, l := range lines {
		s := text[l.from:l.to]
		next := ""
		if i+1 < len(lines) {
			next = text[lines[i+1].from:lines[i+1].to]
		}
		switch {
		case dotNet.MatchString(s), goPlace.MatchString(s), goCall.MatchString(s) && goPlace.MatchString(next):
			add(l.from, l.to, StackTrace)
			python = false
		case pyFrame.MatchString(s):
			add(l.from, l.to, StackTrace)
			python = true
		case python && pyCode.MatchString(s):
			add(l.from, l.to, StackTrace) // the source of the frame, and the marks below it
		default:
			python = false
		}
	}
}
