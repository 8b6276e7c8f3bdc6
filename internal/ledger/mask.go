package ledger

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxInput is how many bytes of a text are looked at.
	MaxInput = 1 << 10
	// MaxText is how many bytes a masked text has at most.
	MaxText = 400
)

// What stands in a masked text for what was there.
const (
	maskNumber = "<n>"
	maskID     = "<id>"
	maskTime   = "<time>"
	maskURL    = "<url>"
	maskEmail  = "<email>"
	maskPath   = "<path>"
	maskValue  = "<value>"
)

// unmaskable stands for a text that does not settle.
const unmaskable = "<value> …"

// maxPasses is how often a text is gone through until nothing changes any more. Two are the rule.
const maxPasses = 8

// Mask takes out of a failure's text what differs from one failure to the next, and with it most of what
// is nobody's business: URLs, e-mail addresses, paths, dates and times, numbers, ids and other long tokens,
// quoted values, values behind an equals sign and behind words like password. The result is one line of at
// most MaxText bytes without control characters. Masking a masked text changes nothing. What is no more
// than plain words, such as the name of a person, stays.
func Mask(text string) string {
	s := cut(text)
	for range maxPasses {
		next := shorten(pass(s))
		if next == s {
			return s
		}
		s = next
	}
	return unmaskable
}

// cut is the beginning of a text, up to MaxInput. The word that is cut goes too, since nobody can say what
// it was the beginning of.
func cut(text string) string {
	if len(text) > MaxInput {
		text = text[:MaxInput]
		if i := strings.LastIndexAny(text, " \n\t"); i >= 0 {
			text = text[:i]
		} else {
			text = maskValue
		}
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

func shorten(s string) string {
	if len(s) <= MaxText {
		return s
	}
	s = strings.TrimSuffix(s, "…")
	end := MaxText - len("…")
	for !utf8.RuneStart(s[end]) {
		end--
	}
	s = s[:end]
	// Not half of a placeholder.
	if i := strings.LastIndexByte(s, '<'); i >= 0 && end-i < len(maskEmail) && !strings.ContainsRune(s[i:], '>') {
		s = s[:i]
	}
	return strings.TrimRight(s, " ") + "…"
}

// Patterns that hold across the borders of words, applied in order before quotes and words are looked at. Most
// texts lack what a pattern needs, and are spared it.
var patterns = []struct {
	needs string
	re    *regexp.Regexp
	with  string
}{
	{"://", regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>` + "`" + `]*`), maskURL},
	{"@", regexp.MustCompile(`[^\s@"'<>()\[\]{},;:=` + "`" + `]+@[^\s@"'<>()\[\]{},;` + "`" + `]+`), maskEmail},
	{"-", regexp.MustCompile(`[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}`), maskID},
	{".", regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?:[:/]\d+)?\b`), maskNumber},
	{"-", regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?)?\b`), maskTime},
	{"/", regexp.MustCompile(`\b\d{1,4}/\d{1,2}/\d{1,4}\b`), maskTime},
	{":", regexp.MustCompile(`\b\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[AaPp][Mm])?(?: (?:UTC|GMT))?\b`), maskTime},
	{" ", regexp.MustCompile(`\b(?:\d{1,2}(?:st|nd|rd|th)? (?:` + months + `)\.?(?:,? \d{4})?|(?:` + months + `)\.? \d{1,2}(?:st|nd|rd|th)?(?:,? \d{4})?)\b`), maskTime},
}

const months = `Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?`

var (
	// adjacent are placeholders without anything between: one thing that was taken apart.
	adjacent = regexp.MustCompile(`(?:<(?:n|id|time|url|email|path|value)>){2,}`)
	// lists are the same placeholder several times over.
	lists = listPatterns()
)

type listPattern struct {
	of string
	re *regexp.Regexp
}

func listPatterns() (out []listPattern) {
	for _, p := range []string{maskNumber, maskID, maskTime, maskURL, maskEmail, maskPath, maskValue} {
		out = append(out, listPattern{p, regexp.MustCompile(p + `(?:[ ,;|.:/]{1,2}` + p + `)+`)})
	}
	return out
}

func pass(s string) string {
	s = oneLine(s)
	digits := strings.ContainsAny(s, "0123456789")
	for _, p := range patterns {
		if strings.Contains(s, p.needs) && (digits || p.with == maskURL || p.with == maskEmail) {
			s = p.re.ReplaceAllString(s, p.with)
		}
	}
	m := masker{text: s, open: make(map[rune]bool)}
	m.run()
	s = m.out.String()
	s = adjacent.ReplaceAllStringFunc(s, func(all string) string {
		for _, p := range []string{maskURL, maskEmail, maskPath, maskValue} {
			if strings.Contains(all, p) {
				return p
			}
		}
		return maskID
	})
	for _, p := range lists {
		if strings.Count(s, p.of) > 1 {
			s = p.re.ReplaceAllString(s, p.of)
		}
	}
	return strings.TrimSpace(s)
}

// oneLine has single spaces in place of line breaks and control characters, and nothing in place of what
// cannot be seen.
func oneLine(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	space := true
	for _, r := range s {
		switch {
		case unicode.Is(unicode.Cf, r):
		case unicode.IsSpace(r) || !unicode.IsPrint(r):
			if !space {
				b.WriteByte(' ')
			}
			space = true
		default:
			b.WriteRune(r)
			space = false
		}
	}
	return strings.TrimSuffix(b.String(), " ")
}

// masker goes through a text once.
type masker struct {
	text string
	out  strings.Builder
	hide int // what of the next word
	// open are the closing quotes that are known not to come any more, so that they are looked for once.
	open map[rune]bool
}

func (m *masker) run() {
	last := ' '
	for i := 0; i < len(m.text); {
		rest := m.text[i:]
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == '<' && placeholder(rest) != "":
			p := placeholder(rest)
			m.out.WriteString(p)
			m.hide = hideNothing
			size = len(p)
			r = '>'
		case closing(r, last) != 0:
			size = m.quoted(rest, size, closing(r, last))
			m.out.WriteString(maskValue)
			m.hide = hideNothing
			r = '>'
		case inWord(r):
			size = wordLength(rest)
			m.word(rest[:size])
			r, _ = utf8.DecodeLastRuneInString(rest[:size])
		default:
			m.out.WriteRune(r)
		}
		last = r
		i += size
	}
}

// placeholder is the one that a text begins with, or "".
func placeholder(s string) string {
	for _, p := range []string{maskNumber, maskID, maskTime, maskURL, maskEmail, maskPath, maskValue} {
		if strings.HasPrefix(s, p) {
			return p
		}
	}
	return ""
}

// closing is the quote that closes what r opens, 0 if r opens nothing. A single quote behind a letter is an
// apostrophe.
func closing(r, before rune) rune {
	switch r {
	case '"', '`':
		return r
	case '\'':
		if unicode.IsLetter(before) {
			return 0
		}
		return r
	case '“', '„':
		return '”'
	case '‘':
		return '’'
	case '«':
		return '»'
	case '‹':
		return '›'
	case '「':
		return '」'
	}
	return 0
}

// quoted is the length of a quoted value with its quotes. One that is not closed goes to the end, or, with a
// single quote, to the end of the word.
func (m *masker) quoted(s string, open int, end rune) int {
	single := end == '\'' || end == '’'
	if m.open[end] {
		if i := strings.IndexRune(s[open:], end); i >= 0 {
			return open + i + utf8.RuneLen(end)
		}
		return wordEnd(s)
	}
	first := 0 // the first closing quote, even if it may be an apostrophe
	for i := open; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case r == '\\' && end == '"' && i < len(s):
			_, size = utf8.DecodeRuneInString(s[i:])
			i += size
		case r == end:
			if next, _ := utf8.DecodeRuneInString(s[i:]); !single || i == len(s) || !unicode.IsLetter(next) {
				return i
			}
			if first == 0 {
				first = i
			}
		}
	}
	m.open[end] = true
	if first != 0 {
		return first
	}
	if single {
		return wordEnd(s)
	}
	return len(s)
}

func wordEnd(s string) int {
	if i := strings.IndexByte(s, ' '); i >= 0 {
		return i
	}
	return len(s)
}

// joiners hold the parts of a word together.
const joiners = `_-.:/\+=%~#&$*?@`

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) || strings.ContainsRune(joiners, r)
}

// wordLength is the length of the word that a text begins with, apostrophes between letters included.
func wordLength(s string) int {
	var last rune
	for i, r := range s {
		if !inWord(r) {
			if r != '\'' && r != '’' || !unicode.IsLetter(last) {
				return i
			}
			if next, _ := utf8.DecodeRuneInString(s[i+utf8.RuneLen(r):]); !unicode.IsLetter(next) {
				return i
			}
		}
		last = r
	}
	return len(s)
}
