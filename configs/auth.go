package configs

import "time"

// Auth says how callers show who they are. A nil *Auth means that nobody has to, which only loopback
// listeners allow.
type Auth struct {
	// APIKeys are keys of Headgate's own, known by their digests.
	APIKeys []APIKey
	// JWT are the issuers whose tokens are accepted.
	JWT []JWT
}

// APIKey is one key and the caller it stands for.
type APIKey struct {
	// Name tells keys apart for operators; it is not a secret.
	Name string
	// SHA256 is the digest of the key in lower-case hex.
	SHA256 string
	// Subject is the caller's identity.
	Subject string
	// Teams are the caller's teams.
	Teams []string
	// Scopes are the caller's scopes.
	Scopes []string
}

// JWT is one issuer of bearer tokens.
type JWT struct {
	// Issuer is the exact iss of its tokens, an http or https URL.
	Issuer string
	// Audience is what a token's aud must contain: the canonical URI of this Headgate.
	Audience string
	// JWKSURL is where the issuer's keys are; empty means that the issuer's metadata says.
	JWKSURL string
	// Algorithms are the signature algorithms accepted.
	Algorithms []string
	// SubjectClaim, TeamsClaim and ScopesClaim name the claims that hold the caller's subject, teams and scopes. A
	// dot reaches into an object.
	SubjectClaim, TeamsClaim, ScopesClaim string
	// Leeway is how far clocks may differ.
	Leeway time.Duration
}

// Team is what one team may use.
type Team struct {
	// Name is the team's key in the configuration, or its file's name.
	Name string
	// Upstreams are the ids of the shared servers that the team sees.
	Upstreams []string
	// OwnUpstreams are servers of this team alone, by id.
	OwnUpstreams map[string]*Upstream
	// Rules allow and deny; what no rule allows is denied.
	Rules []Rule
	// Limits bound the team's calls.
	Limits Limits
	// Naming overrides the naming at the team's own endpoint; zero members are inherited.
	Naming Naming
}

// Rule is one rule of a team. Its parts are those of the policy's page of the manual.
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
	// PerTool bounds each tool that matches a glob over exposed names.
	PerTool map[string]Limits
}
