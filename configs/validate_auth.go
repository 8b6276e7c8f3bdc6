package configs

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

const maxLeeway = 5 * time.Minute

// checkAuth checks who may come in. No text repeats a digest, nor what stands in its place.
func (l *loader) checkAuth(cfg *Config) {
	if cfg.PublicURL != "" {
		l.publicURL("public_url", cfg.PublicURL)
	}
	a := l.auth
	if a == nil {
		return
	}
	if len(a.APIKeys) == 0 && len(a.JWT) == 0 && !l.failed["auth"] && !l.failed["auth.api_keys"] && !l.failed["auth.jwt"] {
		l.problem("auth", "needs api_keys or jwt: without either nobody could use Headgate")
	}
	names, digests, issuers := map[string]string{}, map[string]string{}, map[string]string{}
	for i := range a.APIKeys {
		k, at := &a.APIKeys[i], a.keysAt[i]
		if l.label(at+".name", k.Name) {
			l.once(at+".name", k.Name, at, names)
		}
		if l.digest(at+".sha256", k.SHA256) {
			l.once(at+".sha256", k.SHA256, at, digests)
		}
		l.label(at+".subject", k.Subject)
		l.scopes(at+".scopes", k.Scopes)
		for n, team := range k.Teams {
			l.keyTeam(index(at+".teams", n), team, cfg)
		}
	}
	for i := range a.JWT {
		at := a.jwtAt[i]
		l.issuer(at, &a.JWT[i])
		if a.JWT[i].Issuer != "" {
			l.once(at+".issuer", a.JWT[i].Issuer, at, issuers)
		}
	}
}

// once reports a value that an entry before has as well; owner is the place of the entry at hand.
func (l *loader) once(path, value, owner string, seen map[string]string) {
	if other, twice := seen[value]; twice {
		l.problem(path, "is the same as that of %s", other)
		return
	}
	seen[value] = owner
}

// label checks a name that logs show.
func (l *loader) label(path, s string) bool {
	switch {
	case strings.TrimSpace(s) == "":
		l.problem(path, "must not be empty")
	case len(s) > 255 || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }):
		l.problem(path, "must be at most 255 characters, without control characters")
	default:
		return true
	}
	return false
}

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (l *loader) digest(path, s string) bool {
	const hint = "`headgate key NAME` prints an entry with the digest"
	switch {
	case s == "":
		l.problem(path, "must not be empty; "+hint)
	case digestPattern.MatchString(s):
		return true
	case digestPattern.MatchString(strings.ToLower(s)):
		l.problem(path, "must be in lower case")
	default:
		l.problem(path, "is not a SHA-256 digest, 64 digits of lower-case hex; if it is the key itself, take it out of this file: "+hint)
	}
	return false
}

// keyTeam checks a team of an API key. With team files it may be one whose file is not there at the moment.
func (l *loader) keyTeam(path, team string, cfg *Config) {
	if l.teams[team] != nil {
		return
	}
	switch near := nearest(team, slices.Collect(maps.Keys(l.teams))); {
	case len(cfg.Include) > 0:
		l.warn(path, "there is no team %s", l.show(path, team))
	case near != "":
		l.problem(path, "there is no team %s; did you mean %s?", l.show(path, team), near)
	case !l.teamsGiven:
		l.problem(path, "there is no team %s, and without teams every caller may use everything; define it under teams, or remove it here",
			l.show(path, team))
	default:
		l.problem(path, "there is no team %s", l.show(path, team))
	}
}

// scopes checks the form of RFC 6749, section 3.3, which may stand in a header.
func (l *loader) scopes(path string, scopes []string) {
	for i, s := range scopes {
		if s == "" || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '\\' }) {
			at := index(path, i)
			l.problem(at, "found %s, expected one scope: no spaces, quotes, backslashes or characters beyond ASCII", l.show(at, s))
		}
	}
}

func (l *loader) issuer(at string, j *JWT) {
	if j.Issuer == "" {
		l.problem(at+".issuer", "must not be empty")
	} else if l.identity(at+".issuer", j.Issuer) {
		l.overTLS(at+".issuer", j.Issuer)
	}
	if strings.TrimSpace(j.Audience) == "" {
		l.problem(at+".audience", "must not be empty: a token that was meant for another service must not work here")
	}
	if j.JWKSURL != "" && l.url(at+".jwks_url", j.JWKSURL) {
		l.overTLS(at+".jwks_url", j.JWKSURL)
	}
	if len(j.Algorithms) == 0 {
		l.problem(at+".algorithms", "must not be empty")
	}
	for i, alg := range j.Algorithms {
		l.algorithm(index(at+".algorithms", i), alg)
	}
	if j.SubjectClaim == "" {
		l.problem(at+".subject_claim", "must not be empty")
	}
	l.notNegative(at+".leeway", j.Leeway)
	if j.Leeway > maxLeeway {
		l.problem(at+".leeway", "must be at most %s, since expired tokens are accepted that long", formatDuration(maxLeeway))
	}
}

func (l *loader) algorithm(path, alg string) {
	known := DefaultAlgorithms()
	switch {
	case slices.Contains(known, alg):
	case strings.EqualFold(alg, "none"):
		l.problem(path, "none is never accepted: anybody could make such a token")
	case strings.HasPrefix(strings.ToUpper(alg), "HS"):
		l.problem(path, "found %s: an HMAC's key is shared, and whoever knows the issuer's public key could make such a token; "+
			"expected some of %s", l.show(path, alg), strings.Join(known, " "))
	default:
		l.problem(path, "found %s, expected some of %s", l.show(path, alg), strings.Join(known, " "))
	}
}

// identity checks a URL that stands for somebody, and so has nothing but scheme, host and path.
func (l *loader) identity(path, raw string) bool {
	if !l.url(path, raw) {
		return false
	}
	if u, err := url.Parse(raw); err != nil || u.User != nil || u.RawQuery != "" || u.ForceQuery {
		l.problem(path, "must have neither user nor query")
		return false
	}
	return true
}

func (l *loader) publicURL(path, raw string) { l.identity(path, raw) }

// overTLS refuses plain http to another machine: whoever is in between could put in keys of their own.
func (l *loader) overTLS(path, raw string) {
	if u, err := url.Parse(raw); err == nil && u.Scheme != "https" && !IsLoopback(u.Hostname()) {
		l.problem(path, "must be https; http is accepted for loopback hosts only")
	}
}
