package configs

// field is one key of the configuration. Its type is that of the pointer at returns: *string, *bool, *int,
// *int64 (a size in bytes), *time.Duration, *slog.Level, *[]string or *map[string]string.
type field[T any] struct {
	name string // relative to the section, dots between levels
	at   func(*T) any
	// secret marks values that are never printed, neither by Redacted nor in errors.
	secret bool
	// url marks URLs, of which user and query values are not printed.
	url bool
}

// configFields are the keys outside of upstreams, auth and teams.
var configFields = []field[Config]{
	{name: "listen", at: func(c *Config) any { return &c.Listen }},
	{name: "admin_listen", at: func(c *Config) any { return &c.AdminListen }},
	{name: "public_url", at: func(c *Config) any { return &c.PublicURL }, url: true},
	{name: "include", at: func(c *Config) any { return &c.Include }},
	{name: "lists.page_size", at: func(c *Config) any { return &c.Lists.PageSize }},
	{name: "lists.ttl", at: func(c *Config) any { return &c.Lists.TTL }},
	{name: "lists.stale_for", at: func(c *Config) any { return &c.Lists.StaleFor }},
	{name: "allowed_hosts", at: func(c *Config) any { return &c.AllowedHosts }},
	{name: "allowed_origins", at: func(c *Config) any { return &c.AllowedOrigins }},
	{name: "max_body", at: func(c *Config) any { return &c.MaxBody }},
	{name: "session_idle", at: func(c *Config) any { return &c.SessionIdle }},
	{name: "drain", at: func(c *Config) any { return &c.Drain }},
	{name: "overload.connections", at: func(c *Config) any { return &c.Overload.Connections }},
	{name: "overload.streams", at: func(c *Config) any { return &c.Overload.Streams }},
	{name: "overload.sessions", at: func(c *Config) any { return &c.Overload.Sessions }},
	{name: "overload.caller_streams", at: func(c *Config) any { return &c.Overload.CallerStreams }},
	{name: "overload.caller_sessions", at: func(c *Config) any { return &c.Overload.CallerSessions }},
	{name: "overload.bodies", at: func(c *Config) any { return &c.Overload.Bodies }},
	{name: "ready_upstreams", at: func(c *Config) any { return &c.ReadyUpstreams }},
	{name: "log.level", at: func(c *Config) any { return &c.Log.Level }},
	{name: "log.levels", at: func(c *Config) any { return &c.Log.Levels }},
	{name: "log.subject", at: func(c *Config) any { return &c.Log.Subject }},
	{name: "log.format", at: func(c *Config) any { return &c.Log.Format }},
	{name: "audit.file", at: func(c *Config) any { return &c.Audit.File }},
	{name: "audit.required", at: func(c *Config) any { return &c.Audit.Required }},
	{name: "audit.arguments", at: func(c *Config) any { return &c.Audit.Arguments }},
	{name: "audit.max_size", at: func(c *Config) any { return &c.Audit.MaxSize }},
	{name: "audit.keep", at: func(c *Config) any { return &c.Audit.Keep }},
	{name: "failures.texts", at: func(c *Config) any { return &c.Failures.Texts }},
	{name: "naming.separator", at: func(c *Config) any { return &c.Naming.Separator }},
	{name: "naming.max_name_length", at: func(c *Config) any { return &c.Naming.MaxNameLength }},
}

// upstreamFields are the keys of one entry of upstreams besides guidance.
var upstreamFields = []field[Upstream]{
	{name: "type", at: func(u *Upstream) any { return &u.Type }},
	{name: "url", at: func(u *Upstream) any { return &u.URL }, url: true},
	{name: "headers", at: func(u *Upstream) any { return &u.Headers }, secret: true},
	{name: "command", at: func(u *Upstream) any { return &u.Command }},
	{name: "args", at: func(u *Upstream) any { return &u.Args }},
	{name: "env", at: func(u *Upstream) any { return &u.Env }, secret: true},
	{name: "cwd", at: func(u *Upstream) any { return &u.Cwd }},
	{name: "disabled", at: func(u *Upstream) any { return &u.Disabled }},
	{name: "prefix", at: func(u *Upstream) any { return &u.Prefix }},
	{name: "era", at: func(u *Upstream) any { return &u.Era }},
	{name: "connect_timeout", at: func(u *Upstream) any { return &u.ConnectTimeout }},
	{name: "call_timeout", at: func(u *Upstream) any { return &u.CallTimeout }},
	{name: "max_call_timeout", at: func(u *Upstream) any { return &u.MaxCallTimeout }},
	{name: "start_timeout", at: func(u *Upstream) any { return &u.StartTimeout }},
	{name: "list_timeout", at: func(u *Upstream) any { return &u.ListTimeout }},
	{name: "first_byte_timeout", at: func(u *Upstream) any { return &u.FirstByteTimeout }},
	{name: "retries", at: func(u *Upstream) any { return &u.Retries }},
	{name: "concurrent", at: func(u *Upstream) any { return &u.Concurrent }},
	{name: "queue_timeout", at: func(u *Upstream) any { return &u.QueueTimeout }},
	{name: "breaker.failures", at: func(u *Upstream) any { return &u.Breaker.Failures }},
	{name: "breaker.open_for", at: func(u *Upstream) any { return &u.Breaker.OpenFor }},
	{name: "repeatable", at: func(u *Upstream) any { return &u.Repeatable }},
	{name: "max_answer", at: func(u *Upstream) any { return &u.MaxAnswer }},
	{name: "stream_over", at: func(u *Upstream) any { return &u.StreamOver }},
	{name: "forward_headers", at: func(u *Upstream) any { return &u.ForwardHeaders }},
	{name: "trust", at: func(u *Upstream) any { return &u.Trust }},
	{name: "session", at: func(u *Upstream) any { return &u.Session }},
	{name: "oauth.grant", at: func(u *Upstream) any { return &u.OAuth.Grant }},
	{name: "oauth.token_url", at: func(u *Upstream) any { return &u.OAuth.TokenURL }, url: true},
	{name: "oauth.client_id", at: func(u *Upstream) any { return &u.OAuth.ClientID }},
	{name: "oauth.client_secret", at: func(u *Upstream) any { return &u.OAuth.ClientSecret }, secret: true},
	{name: "oauth.scopes", at: func(u *Upstream) any { return &u.OAuth.Scopes }},
	{name: "oauth.audience", at: func(u *Upstream) any { return &u.OAuth.Audience }},
	{name: "allowed_private_hosts", at: func(u *Upstream) any { return &u.AllowedPrivateHosts }},
	{name: "texts", at: func(u *Upstream) any { return &u.Texts }},
	{name: "leak_filter", at: func(u *Upstream) any { return &u.LeakFilter }},
	{name: "check_arguments", at: func(u *Upstream) any { return &u.CheckArguments }},
	{name: "check_results", at: func(u *Upstream) any { return &u.CheckResults }},
	{name: "guard.tools", at: func(u *Upstream) any { return &u.GuardTools }},
	{name: "guard.window", at: func(u *Upstream) any { return &u.GuardWindow }},
}

// apiKeyFields are the keys of one entry of auth.api_keys.
var apiKeyFields = []field[APIKey]{
	{name: "name", at: func(k *APIKey) any { return &k.Name }},
	{name: "sha256", at: func(k *APIKey) any { return &k.SHA256 }, secret: true},
	{name: "subject", at: func(k *APIKey) any { return &k.Subject }},
	{name: "teams", at: func(k *APIKey) any { return &k.Teams }},
	{name: "scopes", at: func(k *APIKey) any { return &k.Scopes }},
}

// jwtFields are the keys of auth.jwt, or of one entry if it is a list.
var jwtFields = []field[JWT]{
	{name: "issuer", at: func(j *JWT) any { return &j.Issuer }, url: true},
	{name: "audience", at: func(j *JWT) any { return &j.Audience }},
	{name: "jwks_url", at: func(j *JWT) any { return &j.JWKSURL }, url: true},
	{name: "algorithms", at: func(j *JWT) any { return &j.Algorithms }},
	{name: "subject_claim", at: func(j *JWT) any { return &j.SubjectClaim }},
	{name: "teams_claim", at: func(j *JWT) any { return &j.TeamsClaim }},
	{name: "scopes_claim", at: func(j *JWT) any { return &j.ScopesClaim }},
	{name: "leeway", at: func(j *JWT) any { return &j.Leeway }},
}

// teamFields are the keys of one team besides own_upstreams, rules and limits.
var teamFields = []field[Team]{
	{name: "upstreams", at: func(t *Team) any { return &t.Upstreams }},
	{name: "naming.separator", at: func(t *Team) any { return &t.Naming.Separator }},
	{name: "naming.max_name_length", at: func(t *Team) any { return &t.Naming.MaxNameLength }},
}

// ruleFields are the keys of one rule of a team.
var ruleFields = []field[Rule]{
	{name: "allow", at: func(r *Rule) any { return &r.Allow }},
	{name: "deny", at: func(r *Rule) any { return &r.Deny }},
	{name: "when", at: func(r *Rule) any { return &r.When }},
	{name: "require_scope", at: func(r *Rule) any { return &r.RequireScope }},
}

// limitFields are the keys of limits, of its per_caller and of the entries of its per_tool.
var limitFields = []field[Limits]{
	{name: "calls_per_minute", at: func(m *Limits) any { return &m.CallsPerMinute }},
	{name: "concurrent", at: func(m *Limits) any { return &m.Concurrent }},
}

// httpOnly and stdioOnly are the keys of upstreamFields that mean nothing on the other kind of transport.
var (
	httpOnly  = []string{"url", "headers", "connect_timeout", "first_byte_timeout", "forward_headers", "trust", "oauth", "allowed_private_hosts"}
	stdioOnly = []string{"command", "args", "env", "cwd", "start_timeout"}
)
