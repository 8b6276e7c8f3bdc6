package configs

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const minSize = 1 << 10

// validate checks what types cannot say, and brings values into the form that Config promises.
func (l *loader) validate(cfg *Config) {
	if strings.EqualFold(cfg.AdminListen, "off") {
		cfg.AdminListen = ""
	}
	l.listener("listen", cfg.Listen)
	if cfg.AdminListen != "" {
		l.listener("admin_listen", cfg.AdminListen)
		if _, port, _ := net.SplitHostPort(cfg.Listen); cfg.Listen == cfg.AdminListen && port != "0" {
			l.problem("admin_listen", "is the same address as listen")
		}
	}
	for i, host := range cfg.AllowedHosts {
		cfg.AllowedHosts[i] = l.allowedHost(index("allowed_hosts", i), host)
	}
	for i, origin := range cfg.AllowedOrigins {
		cfg.AllowedOrigins[i] = l.allowedOrigin(index("allowed_origins", i), origin)
	}
	if cfg.Lists.PageSize < 0 {
		l.problem("lists.page_size", "must not be negative")
	}
	l.notNegative("lists.ttl", cfg.Lists.TTL)
	l.notNegative("lists.stale_for", cfg.Lists.StaleFor)
	l.positive("session_idle", cfg.SessionIdle)
	l.notNegative("drain", cfg.Drain)
	l.size("max_body", cfg.MaxBody)
	l.overload(cfg)
	l.atMost("ready_upstreams", cfg.ReadyUpstreams, 1000)
	l.logSettings(&cfg.Log)
	l.audit(cfg)
	if !l.given["failures.texts"] {
		// Whoever reaches a listener for others may be anybody's user: what tools said to one is not kept for another.
		cfg.Failures.Texts = IsLoopback(cfg.Listen)
	}
	l.oneOf("naming.separator", cfg.Naming.Separator, separators...)
	l.nameLength("naming.max_name_length", cfg.Naming.MaxNameLength)
	for _, id := range slices.Sorted(maps.Keys(l.upstreams)) {
		l.upstream(join("upstreams", id), l.upstreams[id])
	}
	l.checkAuth(cfg)
	l.checkTeams(cfg)
}

func (l *loader) overload(cfg *Config) {
	o := &cfg.Overload
	for key, n := range map[string]int{"connections": o.Connections, "streams": o.Streams, "sessions": o.Sessions,
		"caller_streams": o.CallerStreams, "caller_sessions": o.CallerSessions} {
		if n < 1 {
			l.problem("overload."+key, "must be at least 1")
		}
	}
	if l.size("overload.bodies", o.Bodies); o.Bodies >= minSize && o.Bodies < cfg.MaxBody {
		l.problem("overload.bodies", "is less than max_body, so that a body of that size could not be read")
	}
}

func (l *loader) audit(cfg *Config) {
	l.oneOf("audit.arguments", cfg.Audit.Arguments, ArgumentsNone, ArgumentsHash, ArgumentsFull)
	l.size("audit.max_size", cfg.Audit.MaxSize)
	if cfg.Audit.Keep < 0 {
		l.problem("audit.keep", "must not be negative")
	}
	if strings.Contains(cfg.Audit.File, "\x00") {
		l.problem("audit.file", "must not contain a NUL")
	}
	if cfg.Audit.File == "" && cfg.Audit.Required {
		l.problem("audit.required", "there is no audit log without audit.file; set the path of one")
	}
	if cfg.Audit.File == "" && (cfg.Audit.Arguments == ArgumentsHash || cfg.Audit.Arguments == ArgumentsFull) {
		l.problem("audit.arguments", "there is no audit log without audit.file; set the path of one")
	}
}

// separators are the values of naming.separator.
var separators = []string{"_", "__", "."}

func (l *loader) nameLength(path string, n int) {
	if n < 1 || n > 128 {
		l.problem(path, "must be from 1 to 128")
	}
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func (l *loader) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		l.problem(path, "found %s, expected one of %s", l.show(path, value), strings.Join(allowed, " "))
	}
}

func (l *loader) positive(path string, d time.Duration) {
	if d <= 0 {
		l.problem(path, "must be more than 0s")
	}
}

func (l *loader) notNegative(path string, d time.Duration) {
	if d < 0 {
		l.problem(path, "must not be negative")
	}
}

func (l *loader) atMost(path string, n, most int) {
	if n < 0 || n > most {
		l.problem(path, "found %d, expected 0 to %d", n, most)
	}
}

func (l *loader) size(path string, n int64) {
	if n < minSize {
		l.problem(path, "must be at least 1KiB")
	}
}

func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

// exposes says what a listener gives away without auth.
var exposes = map[string]string{
	"listen":       "could use every upstream",
	"admin_listen": "could read the state of every upstream",
}

func (l *loader) listener(path, addr string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || !validPort(port) {
		l.problem(path, "found %s, expected host:port such as 127.0.0.1:8080", l.show(path, addr))
		return
	}
	if !IsLoopback(addr) && l.auth == nil {
		if host == "" {
			host = "an empty host"
		} else {
			host = l.show(path, host)
		}
		l.problem(path, "%s is not a loopback address, and without the key auth anyone who reaches it %s; set auth, or "+
			"listen on 127.0.0.1", host, exposes[path])
	}
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?$`)

// validHostPort reports whether s is host or host:port, with IPv6 addresses in brackets.
func validHostPort(s string) bool {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i+1:]
		if !validPort(port) {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		ip, err := netip.ParseAddr(inner)
		return closed && err == nil && ip.Is6()
	}
	return hostName.MatchString(host)
}

func (l *loader) allowedHost(path, host string) string {
	if !validHostPort(host) {
		l.problem(path, "found %s, expected host or host:port", l.show(path, host))
	}
	return strings.ToLower(host)
}

var originScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

func (l *loader) allowedOrigin(path, origin string) string {
	scheme, host, ok := strings.Cut(origin, "://")
	if !ok || !originScheme.MatchString(scheme) || !validHostPort(host) {
		l.problem(path, "found %s, expected a full origin, scheme://host or scheme://host:port", l.show(path, origin))
	}
	return strings.ToLower(origin)
}

var typeSpellings = map[string]string{
	"http": TypeHTTP, "streamable-http": TypeHTTP, "streamablehttp": TypeHTTP, "streamable_http": TypeHTTP,
	"sse": TypeSSE, "stdio": TypeStdio,
}

func (l *loader) upstream(path string, u *upstreamSource) {
	if !idPattern.MatchString(u.ID) || len(u.ID) > maxIDLength {
		l.problem(path, "the id must be lower-case letters and digits with single dashes between, at most %d characters", maxIDLength)
	}
	l.transport(path, u)
	if u.given["prefix"] {
		l.prefix(path+".prefix", u.Prefix)
	}
	l.oneOf(path+".era", u.Era, EraAuto, EraModern, EraLegacy)
	if u.Type == TypeSSE && u.Era == EraModern {
		l.problem(path+".era", "the sse transport exists in the legacy era only")
	}
	l.positive(path+".connect_timeout", u.ConnectTimeout)
	l.positive(path+".call_timeout", u.CallTimeout)
	l.positive(path+".max_call_timeout", u.MaxCallTimeout)
	l.positive(path+".start_timeout", u.StartTimeout)
	l.positive(path+".list_timeout", u.ListTimeout)
	l.positive(path+".queue_timeout", u.QueueTimeout)
	l.positive(path+".breaker.open_for", u.Breaker.OpenFor)
	l.atMost(path+".retries", u.Retries, 10)
	l.atMost(path+".concurrent", u.Concurrent, 1_000_000)
	l.atMost(path+".breaker.failures", u.Breaker.Failures, 1_000_000)
	l.notNegative(path+".first_byte_timeout", u.FirstByteTimeout)
	if u.MaxCallTimeout > 0 && !l.failed[path+".max_call_timeout"] && u.CallTimeout > u.MaxCallTimeout {
		l.problem(path+".call_timeout", "is more than max_call_timeout, which is %s", formatDuration(u.MaxCallTimeout))
	}
	l.size(path+".max_answer", u.MaxAnswer)
	if u.StreamOver != 0 {
		l.size(path+".stream_over", u.StreamOver)
	}
	l.globs(path+".repeatable", u.Repeatable)
	l.answers(path, u.Upstream)
	l.headers(path, u.Upstream)
	l.credentials(path, u)
	l.process(path, u.Upstream)
}

// transport checks what kind of server it is, and that no key of the other kind is there.
func (l *loader) transport(path string, u *upstreamSource) {
	hasURL, hasCommand := u.given["url"], u.given["command"]
	u.TypeGiven = u.given["type"]
	if u.TypeGiven {
		resolved, known := typeSpellings[strings.ToLower(u.Type)]
		if !known {
			l.problem(path+".type", "found %s, expected one of http sse stdio", l.show(path+".type", u.Type))
		}
		u.Type = resolved
	}
	switch {
	case hasURL && hasCommand:
		l.problem(path, "has both url and command, expected one of them")
		return
	case !hasURL && !hasCommand:
		l.problem(path, "has neither url nor command, expected one of them")
		return
	case hasURL && u.Type == TypeStdio:
		l.problem(path+".type", "stdio needs a command, and the entry has a url")
	case hasCommand && (u.Type == TypeHTTP || u.Type == TypeSSE):
		l.problem(path+".type", "%s needs a url, and the entry has a command", u.Type)
	case u.TypeGiven:
	case hasURL:
		u.Type = TypeHTTP
	default:
		u.Type = TypeStdio
	}

	wrong, has := stdioOnly, "url"
	if hasCommand {
		wrong, has = httpOnly, "command"
	}
	for _, key := range wrong {
		if u.given[key] && !u.empty(key) {
			l.problem(path+"."+key, "means nothing for an upstream with a %s", has)
		}
	}
	if hasURL {
		l.url(path+".url", u.URL)
	} else if strings.TrimSpace(u.Command) == "" {
		l.problem(path+".command", "must not be empty")
	}
}

// empty reports that a key is there with nothing in it, as hosts write their files: "env": {}.
func (u *upstreamSource) empty(key string) bool {
	for _, f := range upstreamFields {
		if f.name == key {
			switch v := f.at(u.Upstream).(type) {
			case *string:
				return *v == ""
			case *[]string:
				return len(*v) == 0
			case *map[string]string:
				return len(*v) == 0
			}
		}
	}
	return false
}

// url checks an endpoint. Its text never repeats the value, which may carry credentials.
func (l *loader) url(path, raw string) bool {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		l.problem(path, "is not a valid URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		l.problem(path, "must be absolute, http:// or https:// with a host")
	case u.Port() != "" && (!validPort(u.Port()) || u.Port() == "0"):
		l.problem(path, "has a port that does not exist")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		l.problem(path, "must not have a fragment, which is never sent")
	default:
		return true
	}
	return false
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{0,32}$`)

func (l *loader) prefix(path, prefix string) {
	if !prefixPattern.MatchString(prefix) {
		l.problem(path, "found %s, expected at most 32 characters of A-Z a-z 0-9 _ -, or nothing for bare names", l.show(path, prefix))
	}
}

// process checks what would keep a child from being started.
func (l *loader) process(path string, u *Upstream) {
	const nul = "must not contain a NUL"
	if strings.Contains(u.Command, "\x00") {
		l.problem(path+".command", nul)
	}
	if strings.Contains(u.Cwd, "\x00") {
		l.problem(path+".cwd", nul)
	}
	for i, arg := range u.Args {
		if strings.Contains(arg, "\x00") {
			l.problem(index(path+".args", i), nul)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(u.Env)) {
		at := join(path+".env", name)
		if name == "" || strings.ContainsAny(name, "=\x00") {
			l.problem(at, "is not a name that an environment variable can have")
		}
		if strings.Contains(u.Env[name], "\x00") {
			l.problem(at, nul)
		}
	}
}

func formatDuration(d time.Duration) string {
	s := d.String()
	s = cmp.Or(strings.TrimSuffix(s, "m0s"), s)
	if s != d.String() {
		s += "m"
	}
	if short, ok := strings.CutSuffix(s, "h0m"); ok {
		s = short + "h"
	}
	return s
}
