package configs

// field is one key of the configuration. Its type is that of the pointer at returns: *string, *bool, *int,
// *int64 (a size in bytes), *time.Duration, *slog.Level, *[]string or *map[string]string.
type field[T any] struct {
	name string // relative to the section, dots between levels
	at   func(*T) any
	// secret marks values that are never printed, neither by Redacted nor in errors.
	secret bool
}

// configFields are the keys outside of upstreams.
var configFields = []field[Config]{
	{name: "listen", at: func(c *Config) any { return &c.Listen }},
	{name: "admin_listen", at: func(c *Config) any { return &c.AdminListen }},
	{name: "lists.page_size", at: func(c *Config) any { return &c.Lists.PageSize }},
	{name: "lists.ttl", at: func(c *Config) any { return &c.Lists.TTL }},
	{name: "lists.stale_for", at: func(c *Config) any { return &c.Lists.StaleFor }},
	{name: "allowed_hosts", at: func(c *Config) any { return &c.AllowedHosts }},
	{name: "allowed_origins", at: func(c *Config) any { return &c.AllowedOrigins }},
	{name: "max_body", at: func(c *Config) any { return &c.MaxBody }},
	{name: "session_idle", at: func(c *Config) any { return &c.SessionIdle }},
	{name: "drain", at: func(c *Config) any { return &c.Drain }},
	{name: "log.level", at: func(c *Config) any { return &c.Log.Level }},
	{name: "log.format", at: func(c *Config) any { return &c.Log.Format }},
	{name: "naming.separator", at: func(c *Config) any { return &c.Naming.Separator }},
	{name: "naming.max_name_length", at: func(c *Config) any { return &c.Naming.MaxNameLength }},
}

// upstreamFields are the keys of one entry of upstreams.
var upstreamFields = []field[Upstream]{
	{name: "type", at: func(u *Upstream) any { return &u.Type }},
	{name: "url", at: func(u *Upstream) any { return &u.URL }},
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
	{name: "repeatable", at: func(u *Upstream) any { return &u.Repeatable }},
	{name: "max_answer", at: func(u *Upstream) any { return &u.MaxAnswer }},
	{name: "forward_headers", at: func(u *Upstream) any { return &u.ForwardHeaders }},
}

// httpOnly and stdioOnly are the keys of upstreamFields that mean nothing on the other kind of transport.
var (
	httpOnly  = []string{"url", "headers", "connect_timeout", "forward_headers"}
	stdioOnly = []string{"command", "args", "env", "cwd", "start_timeout"}
)

// reserved are the keys of the configuration contract that are not implemented. They are refused, because a
// setting that is accepted and ignored is worse than none. To implement a key, move its line from here into
// the table of fields above.
var reserved = map[string]bool{
	"auth":        true,
	"teams":       true,
	"include":     true,
	"audit":       true,
	"failures":    true,
	"log.subject": true,

	"upstreams.*.retries":               true,
	"upstreams.*.concurrent":            true,
	"upstreams.*.breaker":               true,
	"upstreams.*.guard":                 true,
	"upstreams.*.check_arguments":       true,
	"upstreams.*.check_results":         true,
	"upstreams.*.texts":                 true,
	"upstreams.*.guidance":              true,
	"upstreams.*.leak_filter":           true,
	"upstreams.*.trust":                 true,
	"upstreams.*.session":               true,
	"upstreams.*.oauth":                 true,
	"upstreams.*.allowed_private_hosts": true,
}
