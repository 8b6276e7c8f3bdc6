package ledger

import (
	"regexp"
	"strings"
	"unicode"
)

var (
	// number is a word of digits and what belongs to numbers, versions, addresses and ranges.
	number = regexp.MustCompile(`^[+\-$#~*]*(?:0x[0-9A-Fa-f]+|\d[\d.:/\-+%_]*)$`)
	// path is a word that leads through folders: from a root, or over more than one border.
	path = regexp.MustCompile(`^(?:~?[/\\].|\.{1,2}[/\\]|[A-Za-z]:[/\\]|[^/\\]*[/\\][^/\\]*[/\\])`)
	// base64 is a word of either alphabet.
	base64 = regexp.MustCompile(`^[A-Za-z0-9+/_\-]+=*$`)
	// secret is a word behind which a value is hidden whatever it looks like.
	secret = regexp.MustCompile(`(?i)(?:passw(?:or)?d|passphrase|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|authorization|cookie|credentials?)$`)
	// linking is a word that may stand between the name of a secret and its value.
	linking = regexp.MustCompile(`^(?i:is|was|of|to|as|for)$`)
	// scheme is the word before the credentials of a header.
	scheme = regexp.MustCompile(`^(?i:bearer|basic|digest)$`)
)

// word writes one word, masked.
func (m *masker) word(w string) {
	body := strings.TrimRight(w, ".:?")
	tail := w[len(body):]
	key, value, assigned := strings.Cut(body, "=")
	name, behind, colon := strings.Cut(body, ":")
	switch {
	case strings.IndexFunc(body, inPart) < 0: // punctuation
		m.out.WriteString(w)
		if strings.HasSuffix(w, "=") || m.hide == hideTokens && w == ":" {
			m.hide = hideAll
		}
		return
	case scheme.MatchString(body):
		// What follows "Bearer" is a credential, unless it is the next word of a sentence.
		m.hide = max(m.hide, hideTokens)
		m.out.WriteString(w)
		return
	case m.hide == hideAll, m.hide == hideTokens && (len(body) >= 20 || !plain(body)):
		m.out.WriteString(maskValue)
	case assigned && key != "" && strings.Trim(value, "=") != "":
		m.parts(key)
		m.out.WriteString("=" + maskValue)
	case colon && behind != "" && secret.MatchString(name):
		m.parts(name)
		m.out.WriteString(":" + maskValue)
	case len(body) >= 20 && base64.MatchString(body) && mixed(body):
		m.out.WriteString(maskID)
	case number.MatchString(body):
		m.out.WriteString(maskNumber)
	case path.MatchString(body):
		m.out.WriteString(maskPath)
	default:
		m.parts(body)
	}
	m.out.WriteString(tail)
	switch named := secret.MatchString(body); {
	case named && strings.HasPrefix(tail, ":"), strings.HasSuffix(w, "="):
		m.hide = hideAll
	case named && tail == "":
		m.hide = hideTokens
	case !linking.MatchString(w):
		m.hide = hideNothing
	}
}

// What a masker hides of the next word because of the one before.
const (
	hideNothing = iota
	hideTokens  // unless it is a plain word
	hideAll
)

// mixed reports that a word has digits, capitals and small letters.
func mixed(w string) bool {
	return strings.IndexFunc(w, unicode.IsDigit) >= 0 && strings.IndexFunc(w, unicode.IsUpper) >= 0 && strings.IndexFunc(w, unicode.IsLower) >= 0
}

// plain reports that a word is of letters alone.
func plain(w string) bool {
	return strings.IndexFunc(w, func(r rune) bool { return !unicode.IsLetter(r) }) < 0
}

func inPart(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) }

// parts writes a word part by part: what is between the joiners.
func (m *masker) parts(w string) {
	type part struct {
		text string
		kind string
	}
	var all []part
	random := 0
	for len(w) > 0 {
		n := strings.IndexFunc(w, func(r rune) bool { return !inPart(r) })
		if n < 0 {
			n = len(w)
		}
		if n > 0 {
			k := kindOf(w[:n])
			if k == maskID {
				random += n
			}
			all = append(all, part{w[:n], k})
			w = w[n:]
		}
		n = strings.IndexFunc(w, inPart)
		if n < 0 {
			n = len(w)
		}
		if n > 0 {
			all = append(all, part{w[:n], ""})
			w = w[n:]
		}
	}
	size := 0
	for _, p := range all {
		size += len(p.text)
	}
	// A token that its own punctuation takes apart, such as a JWT, is one token: its short parts go too.
	if random*2 >= size && random > 0 {
		m.out.WriteString(maskID)
		return
	}
	for _, p := range all {
		switch p.kind {
		case "":
			m.out.WriteString(p.text)
		case digits:
			m.out.WriteString(withoutDigits(p.text))
		default:
			m.out.WriteString(p.kind)
		}
	}
}

// digits is the kind of a part that only its digits are taken out of, such as v2 or 30s.
const digits = "digits"

// longWord is more letters than words have.
const longWord = 28

// kindOf says what a part is replaced by; "" leaves it.
func kindOf(p string) string {
	var letters, numbers, upper, changes, turns int
	hex := true
	var last rune
	for _, r := range p {
		switch {
		case unicode.IsNumber(r):
			numbers++
			if unicode.IsLetter(last) {
				turns++
			}
		case r >= 0x80:
			return pick(numbers > 0 || strings.IndexFunc(p, unicode.IsNumber) >= 0, digits, "")
		default:
			letters++
			if unicode.IsUpper(r) {
				upper++
			}
			if r|0x20 > 'f' {
				hex = false
			}
			if unicode.IsNumber(last) {
				turns++
			}
			if unicode.IsLetter(last) && unicode.IsUpper(r) != unicode.IsUpper(last) {
				changes++
			}
		}
		last = r
	}
	switch size := len(p); {
	case letters == 0:
		return maskNumber
	case numbers > 0 && (size >= 16 || turns >= 3 || hex && size >= 6):
		return maskID
	case numbers > 0:
		return digits
	case size >= longWord, hex && size >= 8, size >= 16 && changes*3 > size:
		return maskID
	}
	return ""
}

func pick(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}

// withoutDigits has a placeholder for each run of digits.
func withoutDigits(p string) string {
	var b strings.Builder
	in := false
	for _, r := range p {
		if unicode.IsNumber(r) {
			if !in {
				b.WriteString(maskNumber)
			}
			in = true
			continue
		}
		in = false
		b.WriteRune(r)
	}
	return b.String()
}
