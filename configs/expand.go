package configs

import (
	"path/filepath"
	"regexp"
	"strings"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${env:NAME}, ${file:/path} and $$ in a value; in a host's file also ${NAME} and
// ${NAME:-default}. A "$" before
// anything else stays. ok is false if something could not be replaced, which has been reported then. Values
// are not expanded again.
func (l *loader) expand(path, value string) (result string, ok bool) {
	if !strings.Contains(value, "$") {
		return value, true
	}
	var b strings.Builder
	ok = true
	for {
		i := strings.IndexByte(value, '$')
		if i < 0 || i+1 == len(value) {
			b.WriteString(value)
			return b.String(), ok
		}
		b.WriteString(value[:i])
		switch value[i+1] {
		case '$':
			b.WriteByte('$')
			value = value[i+2:]
		case '{':
			body, rest, closed := strings.Cut(value[i+2:], "}")
			if !closed {
				l.problem(path, `has "${" without "}"; write "$$" for a literal "$"`)
				return "", false
			}
			text, done := l.reference(path, body)
			b.WriteString(text)
			ok = ok && done
			value = rest
		default:
			b.WriteByte('$')
			value = value[i+1:]
		}
	}
}

// reference gives the value of what stands between "${" and "}".
func (l *loader) reference(path, body string) (string, bool) {
	kind, arg, _ := strings.Cut(body, ":")
	name, fallback, hasDefault := strings.Cut(strings.TrimPrefix(body, "env:"), ":-")
	switch {
	case kind == "env" && envName.MatchString(arg):
		return l.variable(path, arg)
	case kind == "file" && filepath.IsAbs(arg):
		return l.fileValue(path, arg)
	case kind == "file":
		l.problem(path, "${file:…} needs an absolute path")
	case l.host && envName.MatchString(name):
		if v := l.environ[name]; v == "" && hasDefault {
			l.hidden[path] = true
			return fallback, true
		}
		return l.variable(path, name)
	case l.host:
		l.problem(path, "only ${env:NAME}, ${NAME}, ${NAME:-default} and ${file:/path} can be used in a value; write \"$$\" for a literal \"$\"")
	default:
		l.problem(path, "only ${env:NAME} and ${file:/path} can be used in a value; write \"$$\" for a literal \"$\"")
	}
	return "", false
}

func (l *loader) variable(path, name string) (string, bool) {
	l.hidden[path] = true
	v, ok := l.environ[name]
	if !ok {
		l.problem(path, "the environment variable %s is not set", name)
	}
	return v, ok
}

func (l *loader) fileValue(path, file string) (string, bool) {
	l.hidden[path] = true
	l.files[file] = true
	data, err := readRegular(file, maxValueFile)
	if err != nil {
		l.problem(path, "the file %q cannot be read: %s", file, err)
		return "", false
	}
	text, _ := strings.CutSuffix(string(data), "\n")
	return strings.TrimSuffix(text, "\r"), true
}
