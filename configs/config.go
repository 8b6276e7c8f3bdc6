package configs

import (
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"
)

// Transport types of an upstream, as Upstream.Type holds them once resolved.
const (
	TypeHTTP  = "http"
	TypeSSE   = "sse"
	TypeStdio = "stdio"
)

// Protocol eras an upstream can be pinned to with Upstream.Era.
const (
	EraAuto   = "auto"
	EraModern = "modern"
	EraLegacy = "legacy"
)

// Log formats of Log.Format.
const (
	LogAuto = "auto"
	LogText = "text"
	LogJSON = "json"
)

// Config is a whole configuration, with defaults filled in and every value checked. It is not changed after
// loading and may be read concurrently. Printing it in any usual way (fmt, slog, JSON) prints Redacted.
type Config struct {
	// Listen is the address, host:port, of the MCP endpoint. Without Auth it is a loopback address.
	Listen string
	// AdminListen is the address of health, metrics and status; empty means there is none ("off" in a file). Without
	// Auth it is a loopback address; with it, whoever reaches the address needs no credentials all the same.
	AdminListen string
	// PublicURL is the MCP endpoint as clients outside know it, an absolute http or https URL without query and
	// fragment; empty if the file does not say.
	PublicURL string
	// Upstreams are the servers by id. The map is never nil.
	Upstreams map[string]*Upstream
	// Lists says how lists are paged and how long they live.
	Lists Lists
	// AllowedHosts are Host header values, host or host:port in lower case, accepted besides the loopback ones.
	AllowedHosts []string
	// AllowedOrigins are Origin header values, scheme://host[:port] in lower case, that browsers may send.
	AllowedOrigins []string
	// MaxBody is the most bytes a request body may have.
	MaxBody int64
	// SessionIdle is how long a legacy client's session lives without a request.
	SessionIdle time.Duration
	// Drain is how long calls in flight may take to finish at shutdown; 0 cuts them off at once.
	Drain time.Duration
	// Overload are the bounds on what clients can hold at a time.
	Overload Overload
	// ReadyUpstreams is how many upstreams have to be up for Headgate to be ready, where as many are configured.
	ReadyUpstreams int
	// Log says what is logged and how.
	Log Log
	// Audit says what is recorded of every call.
	Audit Audit
	// Failures says what is kept of calls that failed.
	Failures Failures
	// Naming says how exposed names are made.
	Naming Naming
	// Auth says how callers show who they are; nil means that every caller is anonymous.
	Auth *Auth
	// Teams are the teams by name. Nil means that there is no policy and everybody may use everything; an empty map,
	// that nobody may use anything. It is not nil whenever the file has teams or a non-empty include.
	Teams map[string]*Team
	// Include are globs over the teams' files, relative to the folder of the configuration's file.
	Include []string
	// TeamErrors are the faults of team files that a reload passed over: each such team is as it was in
	// Options.Previous, or left out if it was not there. Sorted by path; without Options.Previous there are none.
	TeamErrors []Problem
	// Warnings say, one a line, what was accepted but ignored or changed. They hold no secrets.
	Warnings []string

	files  []string
	hidden map[string]bool // paths of values that came from ${env:…} or ${file:…}
}

// Lists are the settings of list results.
type Lists struct {
	// PageSize is the most entries in a page; 0 gives everything in one page.
	PageSize int
	// TTL caps the lifetime that list results announce to clients.
	TTL time.Duration
	// StaleFor is how long an upstream that stopped answering keeps its entries listed.
	StaleFor time.Duration
}

// Overload are the bounds on what clients can hold at a time. What is beyond them is refused.
type Overload struct {
	// Connections to listen.
	Connections int
	// Streams are GET streams and subscriptions.
	Streams int
	// Sessions of legacy clients.
	Sessions int
	// CallerStreams and CallerSessions are the same for one caller. They do not hold without Auth.
	CallerStreams, CallerSessions int
	// Bodies is the memory in bytes for request bodies of more than 64 KiB together.
	Bodies int64
}

// Log are the settings of the log.
type Log struct {
	// Level is the lowest level that is logged.
	Level slog.Level
	// Levels are the levels of single parts, by a name of LogParts; PartLevels reads them.
	Levels map[string]string
	// Format is "auto" (text on a terminal, JSON otherwise), "text" or "json".
	Format string
	// Subject is how callers show in the log: SubjectPlain, SubjectHash or SubjectNone.
	Subject string
}

// Values of Audit.Arguments.
const (
	ArgumentsNone = "none"
	ArgumentsHash = "hash"
	ArgumentsFull = "full"
)

// Audit are the settings of the audit log.
type Audit struct {
	// File is the path of the log; empty means that there is none. A relative one is relative to Headgate's working
	// directory.
	File string
	// Required says that a call is not sent if its record cannot be written.
	Required bool
	// Arguments says what is recorded of a call's arguments: "none", "hash" or "full".
	Arguments string
	// MaxSize is the size in bytes at which the file is moved aside and a new one begun.
	MaxSize int64
	// Keep is how many files that were moved aside are kept; 0 keeps all.
	Keep int
}

// Failures are the settings of the failure ledger.
type Failures struct {
	// Texts says whether masked failure texts are kept in memory, or counts alone. If the file does not say, they are
	// where Config.Listen is a loopback address.
	Texts bool
}

// Naming are the settings of exposed names.
type Naming struct {
	// Separator stands between prefix and name: "_", "__" or ".".
	Separator string
	// MaxNameLength is the most characters an exposed name may have, 1 to 128.
	MaxNameLength int
}

// Upstream is one MCP server. Printing it in any usual way prints no secrets.
type Upstream struct {
	// ID is the server's key in the configuration.
	ID string
	// Type is "http", "sse" or "stdio", inferred from URL or Command when the file does not say.
	Type string
	// TypeGiven reports that the file says the type.
	TypeGiven bool

	// URL is the endpoint of an http or sse upstream: absolute, http or https.
	URL string
	// Headers are sent with every HTTP request to the upstream. They are secrets.
	Headers map[string]string

	// Command is the program of a stdio upstream.
	Command string
	// Args are the program's arguments.
	Args []string
	// Env is added to the program's environment. Its values are secrets.
	Env map[string]string
	// Cwd is the program's working directory; empty means Headgate's own.
	Cwd string

	// Disabled keeps the upstream in the file and out of service.
	Disabled bool
	// Prefix stands before the separator in exposed names; empty exposes the bare names. It is the id unless
	// the file says otherwise.
	Prefix string
	// Era is "auto", or "modern" or "legacy" to pin the protocol era so that no probe is needed.
	Era string

	// ConnectTimeout bounds connecting to an http or sse upstream.
	ConnectTimeout time.Duration
	// CallTimeout bounds a call without progress.
	CallTimeout time.Duration
	// MaxCallTimeout bounds a call however much progress it reports; never below CallTimeout.
	MaxCallTimeout time.Duration
	// StartTimeout bounds the start of a stdio upstream's program, up to its first answer.
	StartTimeout time.Duration

	// ListTimeout bounds the reading of a whole list, all its pages together.
	ListTimeout time.Duration
	// FirstByteTimeout bounds the wait for the first byte of an answer of an http or sse upstream; 0 leaves it
	// to CallTimeout.
	FirstByteTimeout time.Duration

	// Retries is how often one call may be sent again, where that does no harm; 0 is never.
	Retries int
	// Concurrent is the most calls in flight at a time; 0 is no cap.
	Concurrent int
	// QueueTimeout is how long a call waits for its turn while Concurrent others are in flight.
	QueueTimeout time.Duration
	// Breaker says when calls are no longer sent to an upstream that keeps failing.
	Breaker Breaker

	// Repeatable are globs over the upstream's own tool names that are safe to call twice.
	Repeatable []string
	// MaxAnswer is the most bytes an answer of the upstream may have.
	MaxAnswer int64
	// StreamOver is the size in bytes above which a result over HTTP is passed on while it is still coming in; 0 holds
	// every result until it is whole.
	StreamOver int64
	// ForwardHeaders are names, in canonical form, of client headers that are passed to the upstream.
	ForwardHeaders []string
	// Trust is "same-audience" where the upstream accepts the tokens that are meant for Headgate, or empty.
	Trust string
	// Session says who shares one session with the upstream: "shared", "caller" or "client". It is never
	// "shared" where the credentials are the caller's.
	Session string
	// OAuth says how tokens for the upstream are got; its Grant is empty if they are not.
	OAuth OAuth
	// AllowedPrivateHosts are hosts, host or host:port in lower case, that URLs learned from the upstream may lead to
	// although they are loopback, link-local or private.
	AllowedPrivateHosts []string

	// Texts replace Headgate's own texts for failures of this upstream's tools, by reason or case of a reason. The
	// placeholders {server}, {tool}, {seconds} and {limit} are filled in.
	Texts map[string]string
	// Guidance is advice for results with isError: true.
	Guidance []Guidance
	// LeakFilter masks what must not leave the house in texts of failed calls.
	LeakFilter bool
	// CheckArguments answers arguments that do not fit a tool's inputSchema before they are sent.
	CheckArguments bool
	// CheckResults is "off", "warn" or "reject": what becomes of results that do not fit a tool's outputSchema.
	CheckResults string
	// GuardTools are globs over the upstream's own tool names; a call whose outcome is unknown is not made again
	// for GuardWindow.
	GuardTools []string
	// GuardWindow is how long that is.
	GuardWindow time.Duration

	hidden map[string]bool // keys, relative to the entry, of values that came from ${env:…} or ${file:…}
}

// Breaker are the settings of a circuit breaker.
type Breaker struct {
	// Failures is how many failures of the hop in a row open it; 0 is never.
	Failures int
	// OpenFor is the pause before the upstream is probed.
	OpenFor time.Duration
}

// Default returns the configuration of an empty file. The caller owns it.
func Default() *Config {
	return &Config{
		Listen:      "127.0.0.1:8080",
		AdminListen: "127.0.0.1:8081",
		Upstreams:   map[string]*Upstream{},
		Lists:       Lists{TTL: 5 * time.Minute, StaleFor: 10 * time.Minute},
		MaxBody:     4 << 20,
		SessionIdle: 30 * time.Minute,
		Drain:       20 * time.Second,
		Overload: Overload{Connections: 10_000, Streams: 10_000, Sessions: 100_000, CallerStreams: 200, CallerSessions: 1000,
			Bodies: 256 << 20},
		ReadyUpstreams: 1,
		Log:            Log{Level: slog.LevelInfo, Format: LogAuto, Subject: SubjectPlain},
		Naming:         Naming{Separator: "_", MaxNameLength: 48},
		Failures:       Failures{Texts: true},
		Audit:          Audit{Arguments: ArgumentsNone, MaxSize: 100 << 20},
	}
}

func defaultUpstream(id string) *Upstream {
	return &Upstream{
		ID:             id,
		Prefix:         id,
		Era:            EraAuto,
		ConnectTimeout: 10 * time.Second,
		CallTimeout:    60 * time.Second,
		MaxCallTimeout: 10 * time.Minute,
		StartTimeout:   60 * time.Second,
		MaxAnswer:      32 << 20,
		StreamOver:     256 << 10,
		ListTimeout:    30 * time.Second,
		Retries:        2,
		QueueTimeout:   5 * time.Second,
		Breaker:        Breaker{Failures: 5, OpenFor: 10 * time.Second},
		Session:        SessionShared,
		CheckResults:   CheckOff,
		GuardWindow:    10 * time.Minute,
	}
}

// Files returns the files that were read for this configuration, sorted: itself, team files and those named by
// ${file:…}. Among them are the globs of include, in the form that Watch takes. They are what Watch wants to see.
func (c *Config) Files() []string { return slices.Clone(c.files) }

// Equal reports whether both upstreams have the same settings, so that a connection made for one serves the
// other. An empty list or map equals one that was not given.
func (u *Upstream) Equal(o *Upstream) bool {
	if u == nil || o == nil {
		return u == o
	}
	return u.ID == o.ID && u.Type == o.Type && u.TypeGiven == o.TypeGiven &&
		u.URL == o.URL && maps.Equal(u.Headers, o.Headers) &&
		u.Command == o.Command && slices.Equal(u.Args, o.Args) && maps.Equal(u.Env, o.Env) && u.Cwd == o.Cwd &&
		u.Disabled == o.Disabled && u.Prefix == o.Prefix && u.Era == o.Era &&
		u.ConnectTimeout == o.ConnectTimeout && u.CallTimeout == o.CallTimeout &&
		u.MaxCallTimeout == o.MaxCallTimeout && u.StartTimeout == o.StartTimeout &&
		slices.Equal(u.Repeatable, o.Repeatable) && u.MaxAnswer == o.MaxAnswer && u.StreamOver == o.StreamOver &&
		slices.Equal(u.ForwardHeaders, o.ForwardHeaders) && u.Trust == o.Trust && u.Session == o.Session &&
		u.OAuth.equal(&o.OAuth) && slices.Equal(u.AllowedPrivateHosts, o.AllowedPrivateHosts) &&
		u.ListTimeout == o.ListTimeout && u.FirstByteTimeout == o.FirstByteTimeout && u.Retries == o.Retries &&
		u.Concurrent == o.Concurrent && u.QueueTimeout == o.QueueTimeout && u.Breaker == o.Breaker &&
		maps.Equal(u.Texts, o.Texts) && equalGuidance(u.Guidance, o.Guidance) &&
		u.LeakFilter == o.LeakFilter && u.CheckArguments == o.CheckArguments && u.CheckResults == o.CheckResults &&
		slices.Equal(u.GuardTools, o.GuardTools) && u.GuardWindow == o.GuardWindow
}

// RepeatableTool reports whether one of the globs in Repeatable matches the upstream's own name of a tool. In a
// glob "*" stands for any run of characters, "?" for one, "[…]" for one of a set, and "\" takes the next
// character literally. A malformed glob matches nothing.
func (u *Upstream) RepeatableTool(name string) bool {
	return MatchTool(u.Repeatable, name)
}

// matchGlob is path.Match without the slash being special: it stands aside on both sides as a character that
// no tool name has.
func matchGlob(glob, name string) (bool, error) {
	return path.Match(strings.ReplaceAll(glob, "/", "\x01"), strings.ReplaceAll(name, "/", "\x01"))
}

// IsLoopback reports whether an address, host:port or a bare host, can only be reached from this machine:
// "localhost" or a loopback IP. An empty host means all interfaces and is not loopback.
func IsLoopback(addr string) bool {
	host := addr
	if h, _, err := net.SplitHostPort(addr); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
