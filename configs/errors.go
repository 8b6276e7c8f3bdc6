package configs

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a configuration. Neither field holds bytes of a secret.
type Problem struct {
	// Path is where: a key path like upstreams.github.call_timeout, a file, or a HEADGATE_ variable.
	Path string
	// Text is what, in one line.
	Text string
}

// String is the problem in one line.
func (p Problem) String() string {
	if p.Path == "" {
		return p.Text
	}
	return p.Path + ": " + p.Text
}

// Errors is everything that is wrong with a configuration, sorted by path. Load and Parse return no other kind
// of error.
type Errors struct{ List []Problem }

// Error gives one line for each problem.
func (e *Errors) Error() string {
	lines := make([]string, len(e.List))
	for i, p := range e.List {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func newErrors(list []Problem) *Errors {
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Text, b.Text))
	})
	return &Errors{List: slices.Compact(list)}
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// join appends a key to a path; a key that would not read as one is quoted, which keeps a problem on one line.
func join(path, key string) string {
	if !plainKey.MatchString(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// nearest returns the candidate that key is probably a misspelling of, or "".
func nearest(key string, candidates []string) string {
	best, least := "", max(1, min(3, (len(key)+1)/3))+1
	lower := strings.ToLower(key)
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(lower, strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
