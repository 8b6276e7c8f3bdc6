package configs

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// Auth says how callers show who they are. A nil *Auth means that nobody has to, which only loopback
// listeners allow.
type Auth struct {
	// APIKeys are keys of Headgate's own, known by their digests. Names and digests are unique.
	APIKeys []APIKey
	// JWT are the issuers whose tokens are accepted, each once.
	JWT []JWT
}

// APIKey is one key and the caller it stands for. Printing it in any usual way does not print the digest.
type APIKey struct {
	// Name tells keys apart for operators; it is not a secret.
	Name string
	// SHA256 is the digest of the key, 64 digits of lower-case hex.
	SHA256 string
	// Subject is the caller's identity; never empty.
	Subject string
	// Teams are the caller's teams.
	Teams []string
	// Scopes are the caller's scopes.
	Scopes []string
}

// String prints the key without its digest.
func (k APIKey) String() string {
	return fmt.Sprintf("API key %q of %q", k.Name, k.Subject)
}

// GoString is String, so that %#v does not show the digest either.
func (k APIKey) GoString() string { return k.String() }

// LogValue logs the redacted form.
func (k APIKey) LogValue() slog.Value {
	return slog.AnyValue(redactFields(apiKeyFields, &k, nil, true))
}

// MarshalJSON writes the redacted form.
func (k APIKey) MarshalJSON() ([]byte, error) {
	return json.Marshal(redactFields(apiKeyFields, &k, nil, true))
}

// JWT is one issuer of bearer tokens.
type JWT struct {
	// Issuer is the exact iss of its tokens: an https URL, or http on a loopback host.
	Issuer string
	// Audience is what a token's aud must contain: the canonical URI of this Headgate. Never empty.
	Audience string
	// JWKSURL is where the issuer's keys are; empty means that the issuer's metadata says.
	JWKSURL string
	// Algorithms are the signature algorithms accepted; only those with a public key, at least one.
	Algorithms []string
	// SubjectClaim, TeamsClaim and ScopesClaim name the claims that hold the caller's subject, teams and scopes. A
	// dot reaches into an object. Teams and scopes may be empty: tokens give none then.
	SubjectClaim, TeamsClaim, ScopesClaim string
	// Leeway is how far clocks may differ.
	Leeway time.Duration
}

// Team is what one team may use.
type Team struct {
	// Name is the team's key in the configuration, or its file's name without extension. It has the form of an
	// upstream's id.
	Name string
	// File is the team's own file as include found it, relative to the configuration's folder; empty for a team
	// that stands in the configuration itself.
	File string
	// Upstreams are the ids of the shared servers that the team sees. They exist, save in a team that was kept
	// from before because its file is broken.
	Upstreams []string
	// OwnUpstreams are servers of this team alone, by id. None has the id of one in Upstreams; other teams may use
	// the same ids for servers of theirs.
	OwnUpstreams map[string]*Upstream
	// Rules allow and deny; what no rule allows is denied.
	Rules []Rule
	// Limits bound the team's calls.
	Limits Limits
	// Naming overrides the naming at the team's own endpoint; zero members are inherited.
	Naming Naming

	hidden map[string]bool // paths, relative to the team, of values that came from ${env:…} or ${file:…}
}

// Rule is one rule of a team. It has at least one pattern. Patterns and expression are compiled elsewhere; see
// Options.CheckRules.
type Rule struct {
	// Allow and Deny are patterns over tools.
	Allow, Deny []string
	// When is a CEL expression over caller and tool; empty means always.
	When string
	// RequireScope are scopes that a caller needs for what the rule allows, and is told of.
	RequireScope []string
}

// Limits bound calls. Zero means no bound.
type Limits struct {
	// CallsPerMinute is the rate of calls.
	CallsPerMinute int
	// Concurrent is how many calls may run at a time.
	Concurrent int
	// PerCaller bounds each caller of the team by itself; it has no members of its own kind.
	PerCaller *Limits
	// PerTool bounds each tool that matches a glob over exposed names by itself; its values have no PerCaller and no
	// PerTool.
	PerTool map[string]Limits
}

// DefaultAlgorithms are the signature algorithms of an issuer whose entry does not say. The caller owns the list.
func DefaultAlgorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

func defaultJWT() JWT {
	return JWT{
		Algorithms:   DefaultAlgorithms(),
		SubjectClaim: "sub",
		TeamsClaim:   "groups",
		ScopesClaim:  "scope",
		Leeway:       30 * time.Second,
	}
}
