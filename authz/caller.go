package authz

import (
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/secret"
)

// Caller is who sent a request. It is immutable.
type Caller struct {
	// Subject names the caller among those of one issuer.
	Subject string
	// Issuer is the issuer of the caller's token; "" for keys and for the anonymous caller.
	Issuer string
	// Teams are the teams the caller belongs to, sorted.
	Teams []string
	// Scopes are what the caller was granted, sorted.
	Scopes []string
	// Claims are the claims of the caller's token; nil for keys.
	Claims map[string]any

	token secret.Text
}

// Token returns the verified token that the caller came with; it is empty for keys, which are Headgate's own
// affair, and for the anonymous caller.
func (c Caller) Token() secret.Text { return c.token }

// NewCaller makes a caller that came without a token.
func NewCaller(subject string, teams, scopes []string) Caller {
	return Caller{Subject: subject, Teams: set(teams), Scopes: set(scopes)}
}

// Anonymous is the caller of every request while no authentication is configured, which is possible
// on loopback listeners only.
func Anonymous() Caller { return Caller{Subject: "anonymous"} }

// Key identifies the caller among all: two issuers may know one name for different people.
func (c Caller) Key() string { return c.Issuer + "#" + c.Subject }

// Expires returns when the caller's token ends, if it came with one that does.
func (c Caller) Expires() (time.Time, bool) {
	end, err := jwt.MapClaims(c.Claims).GetExpirationTime()
	if err != nil || end == nil {
		return time.Time{}, false
	}
	return end.Time, true
}

// InTeam reports whether the caller belongs to a team.
func (c Caller) InTeam(team string) bool {
	_, ok := slices.BinarySearch(c.Teams, team)
	return ok
}

// HasScope reports whether the caller was granted a scope.
func (c Caller) HasScope(scope string) bool {
	_, ok := slices.BinarySearch(c.Scopes, scope)
	return ok
}

// set sorts a list and drops what stands in it twice.
func set(list []string) []string {
	s := slices.Clone(list)
	slices.Sort(s)
	return slices.Compact(s)
}
