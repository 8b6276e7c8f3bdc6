package leak

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind says what was found.
type Kind string

// The kinds of findings.
const (
	Secret     Kind = "secret"      // a secret that the filter was made with, or what looks like a credential
	StackTrace Kind = "stack_trace" // of Go, Python, Java, Node or .NET, or a source file with a line number
	Host       Kind = "host"        // a private host name or address
	SQL        Kind = "sql"         // a statement, or an error message of a database
	Unexamined Kind = "unexamined"  // what lies beyond MaxText
)

// Mask stands in place of what was found.
const Mask = "[removed]"

// MaxText is how much of one text, and of all texts in one value, is examined, in bytes. What is beyond is masked
// unseen: a filter that lets pass what it has not looked at would be none.
const MaxText = 64 << 10

// shortest is the length below which a secret is not looked for: it would mask ordinary words.
const shortest = 6

// Filter masks findings. It is immutable and may be used concurrently.
type Filter struct {
	secrets []string            // longest first
	hosts   []string            // in lower case
	redact  func(string) string // masks secrets that come and go; may be nil
}

// Counts are the numbers of findings by kind.
type Counts map[Kind]int

// New makes a filter that also finds these secrets and hosts. Secrets of fewer than 6 bytes are passed over.
func New(secrets, hosts []string) *Filter {
	f := &Filter{}
	for _, s := range secrets {
		if len(s) < shortest {
			continue
		}
		f.secrets = append(f.secrets, s)
		if quoted := strconv.Quote(s); len(quoted) != len(s)+2 {
			f.secrets = append(f.secrets, quoted[1:len(quoted)-1]) // as a text shows it that quotes another
		}
	}
	slices.SortFunc(f.secrets, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	f.secrets = slices.Compact(f.secrets)
	for _, h := range hosts {
		if h != "" {
			f.hosts = append(f.hosts, strings.ToLower(h))
		}
	}
	return f
}

// With returns a filter that also masks what redact does, in redact's own way.
func (f *Filter) With(redact func(string) string) *Filter {
	with := *f
	with.redact = redact
	return &with
}

// span is a part of a text that is to be masked.
type span struct {
	from, to int
	kind     Kind
}

// Text masks what is found in a text and adds the findings to found. It returns the text itself if there are none.
func (f *Filter) Text(text string, found Counts) string {
	return f.bounded(text, MaxText, found)
}

func (f *Filter) bounded(text string, most int, found Counts) string {
	whole := len(text)
	if whole > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	var spans []span
	add := func(from, to int, kind Kind) {
		if from < to {
			spans = append(spans, span{from, to, kind})
		}
	}
	lower := asciiLower(text)
	f.findSecrets(text, lower, add)
	findTraces(text, add)
	findSQL(text, lower, add)
	f.findHosts(text, lower, add)
	if len(spans) == 0 && whole == len(text) {
		return f.redacted(text, found)
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	var b strings.Builder
	at := 0
	masked := false // the last that was written is the mask
	for _, s := range spans {
		if s.from < at { // inside of the one before, or reaching out of it
			at = max(at, s.to)
			continue
		}
		if between := text[at:s.from]; !masked || strings.TrimSpace(between) != "" {
			b.WriteString(between)
			masked = false
		}
		if !masked {
			b.WriteString(Mask)
			masked = true
		}
		found[s.kind]++
		at = s.to
	}
	b.WriteString(text[at:])
	if whole > len(text) {
		b.WriteString(Mask)
		found[Unexamined]++
	}
	return f.redacted(b.String(), found)
}

func (f *Filter) redacted(text string, found Counts) string {
	if f.redact == nil {
		return text
	}
	masked := f.redact(text)
	if masked != text {
		found[Secret]++
	}
	return masked
}

// hasAny is what comes before a costly search: no match is without one of these words.
func hasAny(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// findSecrets looks for the configured secrets and for what has the form of a credential.
func (f *Filter) findSecrets(text, lower string, add func(from, to int, kind Kind)) {
	for _, s := range f.secrets {
		for at := 0; ; {
			i := strings.Index(text[at:], s)
			if i < 0 {
				break
			}
			add(at+i, at+i+len(s), Secret)
			at += i + len(s)
		}
	}
	if !hasAny(lower, "bearer", "basic", "eyj", "@") {
		return
	}
	for _, m := range credentials.FindAllStringSubmatchIndex(text, -1) {
		for g := 2; g < len(m); g += 2 {
			if m[g] >= 0 {
				add(m[g], m[g+1], Secret)
			}
		}
	}
}
