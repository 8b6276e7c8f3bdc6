package configs

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBadFiles holds every testdata/*.bad.* to the errors in the file beside it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bad.*")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".err") {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file + ".err")
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := parseErrors(t, file, string(data), Options{}).Error()
			got = strings.ReplaceAll(got, file, filepath.Base(file))
			if got+"\n" != string(want) {
				t.Errorf("errors:\n%s\nwant:\n%s", got, want)
			}
			if strings.Contains(got, "hunter2") {
				t.Errorf("errors show a value of the file:\n%s", got)
			}
		})
	}
}

func TestGoodFiles(t *testing.T) {
	good, err := filepath.Glob("testdata/*.good.*")
	if err != nil || len(good) < 5 {
		t.Fatalf("found %d files: %v", len(good), err)
	}
	examples, err := filepath.Glob("examples/*.*")
	if err != nil || len(examples) < 3 {
		t.Fatalf("found %d examples: %v", len(examples), err)
	}
	for _, file := range append(good, examples...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			cfg, err := Load(file, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(cfg.Files(), file) || len(cfg.Include) == 0 && len(cfg.Files()) != 1 {
				t.Errorf("files = %q, want the file itself", cfg.Files())
			}
		})
	}
}

func TestAllKeys(t *testing.T) {
	got, err := Load("testdata/all-keys.good.yaml", Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := defaultUpstream("web")
	web.Type, web.TypeGiven, web.URL, web.Prefix, web.Era = TypeHTTP, true, "https://mcp.example.com/mcp", "", EraLegacy
	web.Headers = map[string]string{"X-Api-Version": "2"}
	web.ForwardHeaders = []string{"X-Request-Id"}
	web.CallTimeout, web.MaxCallTimeout = 2*time.Minute, 2*time.Minute
	web.Repeatable, web.MaxAnswer, web.StreamOver = []string{"get_*"}, 1e9, 0
	web.Session, web.AllowedPrivateHosts = SessionClient, []string{"idp.internal", "[::1]:8443"}
	web.OAuth = OAuth{Grant: GrantTokenExchange, TokenURL: "http://idp.internal/token", ClientID: "gw", ClientSecret: "s3cret",
		Scopes: []string{"read", "write"}, Audience: "https://api.example.com"}
	same := defaultUpstream("same")
	same.Type, same.URL, same.Headers = TypeHTTP, "https://mcp.example.com/mcp", map[string]string{"Authorization": "Bearer own"}
	same.Trust, same.ForwardHeaders, same.Session = TrustSameAudience, []string{"Authorization"}, SessionCaller
	web.Texts = map[string]string{"timeout": "Ask {server} for {tool}.", "unavailable": "Wait {seconds}."}
	web.Guidance = []Guidance{
		{Tools: []string{"get_*"}, Match: "(?i)not found", Append: "Ids above 1000 are in the archive."},
		{Match: "denied", Append: "Ask the owner."},
	}
	web.LeakFilter, web.CheckArguments, web.CheckResults = true, true, CheckWarn
	web.GuardTools, web.GuardWindow = []string{"pay_*"}, time.Hour
	child := defaultUpstream("child")
	child.Type, child.Command, child.Args, child.Cwd, child.Disabled = TypeStdio, "server", []string{"--stdio"}, "/srv", true
	child.Env = map[string]string{"LOG_LEVEL": "warn"}
	want := &Config{
		Listen:         "[::1]:0",
		Upstreams:      map[string]*Upstream{"web": web, "same": same, "child": child},
		Lists:          Lists{PageSize: 10, StaleFor: time.Hour},
		AllowedHosts:   []string{"gw.example.com", "gw.example.com:8443", "[::1]:80"},
		AllowedOrigins: []string{"https://app.example.com", "vscode-webview://abc"},
		MaxBody:        65536,
		SessionIdle:    90 * time.Minute,
		Overload:       Overload{Connections: 1, Streams: 2, Sessions: 3, CallerStreams: 4, CallerSessions: 5, Bodies: 65536},
		Audit:          Audit{File: "/var/log/headgate/audit.log", Required: true, Arguments: ArgumentsHash, MaxSize: 1 << 20, Keep: 5},
		Failures:       Failures{Texts: true},
		Log:            Log{Level: slog.LevelDebug, Levels: map[string]string{"upstream": "warn", "access": "error"}, Format: LogJSON, Subject: SubjectHash},
		Naming:         Naming{Separator: ".", MaxNameLength: 128},
	}
	clearPrivate(got)
	if len(got.Warnings) != 3 || !strings.Contains(got.Warnings[1], "upstreams.web: calls need a token of the caller, and without auth.jwt") {
		t.Errorf("warnings = %q", got.Warnings)
	}
	got.Warnings = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("configuration:\n%v\nwant:\n%v", got, want)
	}
}

// clearPrivate leaves what users of the package see.
func clearPrivate(c *Config) {
	c.files, c.hidden = nil, nil
	for _, u := range c.Upstreams {
		u.hidden = nil
	}
	for _, t := range c.Teams {
		t.hidden = nil
		for _, u := range t.OwnUpstreams {
			u.hidden = nil
		}
	}
}

// TestFullExampleShowsDefaults keeps the comments' promise that full.yaml gives defaults, save for what makes
// its upstreams, callers and teams.
func TestFullExampleShowsDefaults(t *testing.T) {
	got, err := Load("examples/full.yaml", Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("examples/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range configFields {
		name := f.name[strings.LastIndexByte(f.name, '.')+1:]
		if !strings.Contains(string(text), "\n"+name+": ") && !strings.Contains(string(text), "\n  "+name+": ") {
			t.Errorf("full.yaml does not show %s", f.name)
		}
		want := reflect.ValueOf(f.at(Default())).Elem()
		if v := reflect.ValueOf(f.at(got)).Elem(); v.Kind() != reflect.Slice && v.Kind() != reflect.Map && !v.Equal(want) {
			t.Errorf("%s is %v, default is %v", f.name, v, want)
		}
	}
	shows(t, string(text), apiKeyFields)
	shows(t, string(text), jwtFields)
	shows(t, string(text), teamFields)
	shows(t, string(text), ruleFields)
	shows(t, string(text), limitFields)
	shows(t, string(text), guidanceFields)
	wantJWT := defaultJWT()
	for _, f := range jwtFields[3:] {
		if v, want := reflect.ValueOf(f.at(&got.Auth.JWT[0])).Elem().Interface(), reflect.ValueOf(f.at(&wantJWT)).Elem().Interface(); !reflect.DeepEqual(v, want) {
			t.Errorf("%s is %v, default is %v", f.name, v, want)
		}
	}
	for _, f := range upstreamFields {
		shown := "\n    " + f.name + ":"
		if section, name, ok := strings.Cut(f.name, "."); ok {
			shown = "\n      " + name + ":"
			if !strings.Contains(string(text), "\n    "+section+":") {
				t.Errorf("full.yaml does not show upstreams.*.%s", section)
			}
		}
		if !strings.Contains(string(text), shown) {
			t.Errorf("full.yaml does not show upstreams.*.%s", f.name)
		}
		if d, ok := f.at(got.Upstreams["team-docs"]).(*time.Duration); ok && *d != *f.at(defaultUpstream("x")).(*time.Duration) {
			t.Errorf("%s is %v in full.yaml, not its default", f.name, *d)
		}
	}
}

func shows[T any](t *testing.T, text string, fields []field[T]) {
	for _, f := range fields {
		name := f.name[strings.LastIndexByte(f.name, '.')+1:] + ": "
		if !strings.Contains(text, "    "+name) && !strings.Contains(text, "- "+name) {
			t.Errorf("full.yaml does not show %s", f.name)
		}
	}
}

// samples are, for every key there is, a value other than the default, as YAML and as a variable's text; "" means
// that variables cannot set it.
var samples = map[string][2]string{
	"listen":                   {`"127.0.0.1:1"`, "127.0.0.1:1"},
	"admin_listen":             {`"127.0.0.1:2"`, "127.0.0.1:2"},
	"public_url":               {`"https://gw.example.com/mcp"`, "https://gw.example.com/mcp"},
	"lists.page_size":          {"7", "7"},
	"lists.ttl":                {"7s", "7s"},
	"lists.stale_for":          {"7s", "7s"},
	"allowed_hosts":            {"[a.example.com, b.example.com]", "a.example.com, b.example.com"},
	"allowed_origins":          {`["https://a.example.com"]`, "https://a.example.com"},
	"max_body":                 {"7MiB", "7MiB"},
	"session_idle":             {"7s", "7s"},
	"drain":                    {"7s", "7s"},
	"overload.connections":     {"7", "7"},
	"overload.streams":         {"7", "7"},
	"overload.sessions":        {"7", "7"},
	"overload.caller_streams":  {"7", "7"},
	"overload.caller_sessions": {"7", "7"},
	"overload.bodies":          {"7MiB", "7MiB"},
	"ready_upstreams":          {"7", "7"},
	"log.level":                {"warn", "warn"},
	"log.format":               {"json", "json"},
	"naming.separator":         {"__", "__"},
	"naming.max_name_length":   {"7", "7"},
	"failures.texts":           {"false", "0"},
	"audit.file":               {"other.log", "other.log"},
	"audit.required":           {"true", "1"},
	"audit.arguments":          {"hash", "hash"},
	"audit.max_size":           {"7MiB", "7MiB"},
	"audit.keep":               {"7", "7"},
	"log.levels":               {"{upstream: debug}", ""},
	"log.subject":              {"none", "none"},

	"upstreams.web.type":                  {"sse", "sse"},
	"upstreams.web.url":                   {`"https://mcp.example.com/other"`, "https://mcp.example.com/other"},
	"upstreams.web.headers":               {"{X-A: b}", ""},
	"upstreams.child.command":             {"other", "other"},
	"upstreams.child.args":                {"[a, b]", "a,b"},
	"upstreams.child.env":                 {"{A: b}", ""},
	"upstreams.child.cwd":                 {"/srv", "/srv"},
	"upstreams.web.disabled":              {"true", "true"},
	"upstreams.web.prefix":                {`"w"`, "w"},
	"upstreams.web.era":                   {"modern", "modern"},
	"upstreams.web.connect_timeout":       {"7s", "7s"},
	"upstreams.web.call_timeout":          {"7s", "7s"},
	"upstreams.web.max_call_timeout":      {"7m", "7m"},
	"upstreams.child.start_timeout":       {"7s", "7s"},
	"upstreams.web.repeatable":            {`["get_*"]`, "get_*"},
	"upstreams.web.max_answer":            {"7KiB", "7KiB"},
	"upstreams.web.stream_over":           {"7KiB", "7KiB"},
	"upstreams.web.forward_headers":       {"[X-Request-Id]", "x-request-id"},
	"upstreams.web.list_timeout":          {"7s", "7s"},
	"upstreams.web.first_byte_timeout":    {"7s", "7s"},
	"upstreams.web.retries":               {"7", "7"},
	"upstreams.web.concurrent":            {"7", "7"},
	"upstreams.web.queue_timeout":         {"7s", "7s"},
	"upstreams.web.breaker.failures":      {"7", "7"},
	"upstreams.web.breaker.open_for":      {"7s", "7s"},
	"upstreams.my-child.disabled":         {"true", "1"},
	"upstreams.my-child.call_timeout":     {"7s", "7s"},
	"upstreams.web.trust":                 {"same-audience", "same-audience"},
	"upstreams.web.session":               {"client", "client"},
	"upstreams.login.oauth.grant":         {"token_exchange", "token_exchange"},
	"upstreams.login.oauth.token_url":     {`"https://idp.example.com/token"`, "https://idp.example.com/token"},
	"upstreams.login.oauth.client_id":     {"other", "other"},
	"upstreams.login.oauth.client_secret": {"other", "other"},
	"upstreams.login.oauth.scopes":        {"[a, b]", "a,b"},
	"upstreams.login.oauth.audience":      {`"https://api.example.com"`, "https://api.example.com"},
	"upstreams.web.allowed_private_hosts": {"[a.example.com]", "a.example.com"},
	"upstreams.web.texts":                 {"{timeout: t}", ""},
	"upstreams.web.guidance":              {"[{match: m, append: a}]", ""},
	"upstreams.web.leak_filter":           {"true", "true"},
	"upstreams.web.check_arguments":       {"true", "true"},
	"upstreams.web.check_results":         {"reject", "reject"},
	"upstreams.web.guard.tools":           {"[a, b]", "a,b"},
	"upstreams.web.guard.window":          {"7s", "7s"},
}

const sampleUpstreams = `
upstreams:
  web: {url: https://mcp.example.com/mcp}
  child: {command: server}
  my-child: {command: server}
  login: {url: https://mcp.example.com/mcp, oauth: {grant: client_credentials, client_id: a, client_secret: b, token_url: "https://idp.example.com"}}
audit: {file: a.log}
`

// TestEveryKeyHasAnEffect is the guard against settings that are accepted and ignored: each key of the schema
// must change the configuration, whichever way it is set, and print differently.
func TestEveryKeyHasAnEffect(t *testing.T) {
	var keys []string
	for _, f := range configFields {
		if f.name != "include" { // it does not stand alone; see TestEveryTeamKeyHasAnEffect
			keys = append(keys, f.name)
		}
	}
	for _, f := range upstreamFields {
		owner := "web"
		if slices.Contains(stdioOnly, f.name) {
			owner = "child"
		}
		if strings.HasPrefix(f.name, "oauth.") {
			owner = "login" // none of them can stand alone
		}
		keys = append(keys, "upstreams."+owner+"."+f.name)
	}
	keys = append(keys, "upstreams.web.guidance")
	base := mustParse(t, "c.yaml", sampleUpstreams, Options{})
	clearPrivate(base)
	for _, key := range keys {
		sample, ok := samples[key]
		if !ok {
			t.Errorf("no sample for %s", key)
			continue
		}
		t.Run(key, func(t *testing.T) {
			fromFile := mustParse(t, "c.yaml", yamlWith(key, sample[0]), Options{})
			clearPrivate(fromFile)
			if reflect.DeepEqual(base, fromFile) {
				t.Errorf("setting %s in the file changes nothing", key)
			}
			if base.String() == fromFile.String() && !strings.HasSuffix(key, "client_secret") {
				t.Errorf("setting %s in the file does not show", key)
			}
			if sample[1] == "" {
				return
			}
			for way, o := range map[string]Options{
				"variable": {Environ: []string{variable(key) + "=" + sample[1]}},
				"override": {Overrides: map[string]any{key: sample[1]}},
			} {
				got := mustParse(t, "c.yaml", sampleUpstreams, o)
				clearPrivate(got)
				if !reflect.DeepEqual(got, fromFile) {
					t.Errorf("by %s:\n%v\nby file:\n%v", way, got, fromFile)
				}
			}
		})
	}
}

func variable(key string) string {
	return "HEADGATE_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// yamlWith is sampleUpstreams with one more key.
func yamlWith(key, value string) string {
	parts := strings.Split(key, ".")
	switch {
	case len(parts) == 1:
		return sampleUpstreams + key + ": " + value + "\n"
	case key == "audit.file":
		return strings.Replace(sampleUpstreams, "a.log", value, 1)
	case parts[0] == "audit": // which means nothing without a file
		return strings.Replace(sampleUpstreams, "a.log", fmt.Sprintf("a.log, %s: %s", parts[1], value), 1)
	case parts[0] != "upstreams":
		return sampleUpstreams + fmt.Sprintf("%s: {%s: %s}\n", parts[0], parts[1], value)
	}
	if parts[2] == "oauth" {
		given := map[string]string{"grant": "client_credentials", "client_id": "a", "client_secret": "b", "token_url": `"https://idp.example.com"`}
		given[parts[3]] = value
		var all []string
		for k, v := range given {
			all = append(all, k+": "+v)
		}
		return strings.Replace(sampleUpstreams, `grant: client_credentials, client_id: a, client_secret: b, token_url: "https://idp.example.com"`, strings.Join(all, ", "), 1)
	}
	own := map[string]string{"web": "url: https://mcp.example.com/mcp", "child": "command: server"}[parts[1]]
	if len(parts) == 4 {
		value = fmt.Sprintf("{%s: %s}", parts[3], value)
	}
	line := fmt.Sprintf("  %s: {%s}\n", parts[1], own)
	if parts[2] == "url" || parts[2] == "command" {
		return strings.Replace(sampleUpstreams, line, fmt.Sprintf("  %s: {%s: %s}\n", parts[1], parts[2], value), 1)
	}
	return strings.Replace(sampleUpstreams, line, fmt.Sprintf("  %s: {%s, %s: %s}\n", parts[1], own, parts[2], value), 1)
}

func TestDefaults(t *testing.T) {
	for name, load := range map[string]func() (*Config, error){
		"no file":    func() (*Config, error) { return Load("", Options{}) },
		"empty yaml": func() (*Config, error) { return Parse("c.yaml", nil, Options{}) },
		"empty json": func() (*Config, error) { return Parse("c.json", []byte("{}"), Options{}) },
		"void json":  func() (*Config, error) { return Parse("c.json", nil, Options{}) },
		"empty toml": func() (*Config, error) { return Parse("C.TOML", nil, Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := load()
			if err != nil {
				t.Fatal(err)
			}
			clearPrivate(cfg)
			if !reflect.DeepEqual(cfg, Default()) {
				t.Errorf("configuration = %v, want %v", cfg, Default())
			}
		})
	}
}

func TestPrecedence(t *testing.T) {
	const file = "listen: 127.0.0.1:1\nadmin_listen: 127.0.0.1:2\ndrain: 1s\n"
	cfg := mustParse(t, "c.yaml", file, Options{
		Environ:   []string{"HEADGATE_ADMIN_LISTEN=127.0.0.1:3", "HEADGATE_DRAIN=2s", "PATH=/bin", "HEADGATES=x"},
		Overrides: map[string]any{"drain": 3 * time.Second, "lists.page_size": 4, "log.level": slog.LevelError, "allowed_hosts": []string{"a"}},
	})
	if cfg.Listen != "127.0.0.1:1" || cfg.AdminListen != "127.0.0.1:3" || cfg.Drain != 3*time.Second || cfg.MaxBody != 4<<20 {
		t.Errorf("configuration = %v", cfg)
	}
	if cfg.Lists.PageSize != 4 || cfg.Log.Level != slog.LevelError || !slices.Equal(cfg.AllowedHosts, []string{"a"}) {
		t.Errorf("typed overrides give %v", cfg)
	}
}

func TestVariables(t *testing.T) {
	tests := []struct {
		name, environ, want string // want "" means accepted
	}{
		{"misspelt", "HEADGATE_LISTNE=x", "HEADGATE_LISTNE: names no setting; did you mean HEADGATE_LISTEN?"},
		{"unlike any", "HEADGATE_SOMETHING_ELSE=x", "HEADGATE_SOMETHING_ELSE: names no setting"},
		{"upstream not in the file", "HEADGATE_UPSTREAMS_OTHER_TOOLBOX_URL=x", "HEADGATE_UPSTREAMS_OTHER_TOOLBOX_URL: names no setting"},
		{"map", "HEADGATE_UPSTREAMS_X_HEADERS=x", "HEADGATE_UPSTREAMS_X_HEADERS: names no setting"},
		{"bad number", "HEADGATE_LISTS_PAGE_SIZE=ten", `lists.page_size: found "ten", expected a whole number (set by HEADGATE_LISTS_PAGE_SIZE)`},
		{"huge number", "HEADGATE_LISTS_PAGE_SIZE=99999999999", `lists.page_size: found "99999999999", expected a whole number (set by HEADGATE_LISTS_PAGE_SIZE)`},
		{"bad value", "HEADGATE_LOG_FORMAT=xml", `log.format: found "xml", expected one of auto text json (set by HEADGATE_LOG_FORMAT)`},
		{"service host of Kubernetes", "HEADGATE_SERVICE_HOST=10.0.0.1", ""},
		{"service port of Kubernetes", "HEADGATE_PORT_8080_TCP_ADDR=10.0.0.1", ""},
		{"other service's port of Kubernetes", "HEADGATE_ADMIN_PORT=tcp://10.0.0.1:8081", ""},
		{"two upstreams under one name", "HEADGATE_UPSTREAMS_X_MAX_CALL_TIMEOUT=20m",
			"HEADGATE_UPSTREAMS_X_MAX_CALL_TIMEOUT: names more than one setting: upstreams.x.max_call_timeout, upstreams.x-max.call_timeout"},
	}
	const file = "upstreams: {x: {command: a}, x-max: {command: a}}"
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Environ: []string{tt.environ}}
			if tt.want == "" {
				mustParse(t, "c.yaml", file, o)
				return
			}
			if got := parseErrors(t, "c.yaml", file, o).Error(); got != tt.want {
				t.Errorf("errors = %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestOverridesAreStrict(t *testing.T) {
	all := parseErrors(t, "c.json", `{"mcpServers": {}}`, Options{Overrides: map[string]any{
		"lisen": "x", "something": 1, "lists.page_size": true, "upstreams.web.url": "https://mcp.example.com/mcp", "upstreams.web.headers.X.Y": 1,
	}})
	want := `lisen: unknown key; did you mean listen?
lists.page_size: found a boolean, expected a whole number
something: unknown key
upstreams.web.headers."X.Y": found a number, expected a string; put it in quotes`
	if all.Error() != want {
		t.Errorf("errors:\n%v\nwant:\n%s", all, want)
	}
}

func TestFormatsAgree(t *testing.T) {
	texts := map[string]string{
		"c.yaml": `{drain: 1s, max_body: 2048, lists: {page_size: 3}, allowed_hosts: [a], upstreams: {a: {command: s, args: [x], env: {A.B: c}, disabled: true}}}`,
		"c.yml":  "drain: 1s\nmax_body: 2KiB\nlists:\n  page_size: 3\nallowed_hosts:\n- a\nupstreams:\n  a:\n    command: s\n    args: [x]\n    env: {A.B: c}\n    disabled: true\n",
		"c.json": "\ufeff" + `{"drain": "1s", "max_body": 2048, "lists": {"page_size": 3}, "allowed_hosts": ["a"], "upstreams": {"a": {"command": "s", "args": ["x"], "env": {"A.B": "c"}, "disabled": true}}}`,
		"c.toml": "drain = '1s'\nmax_body = 2_048\nallowed_hosts = ['a']\n[lists]\npage_size = 3\n[upstreams.a]\ncommand = 's'\nargs = ['x']\nenv = {'A.B' = 'c'}\ndisabled = true\n",
	}
	want := mustParse(t, "c.yaml", texts["c.yaml"], Options{})
	if want.Upstreams["a"].Env["A.B"] != "c" || want.MaxBody != 2048 {
		t.Fatalf("configuration = %v", want)
	}
	for name, text := range texts {
		if got := mustParse(t, name, text, Options{}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s gives %v, want %v", name, got, want)
		}
	}
}

func TestLoadUnreadable(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	for path, text := range map[string]string{missing: "no such file", t.TempDir(): "not a regular file"} {
		cfg, err := Load(path, Options{})
		if _, ok := err.(*Errors); !ok || cfg != nil {
			t.Fatalf("Load(%q) = %v, %T", path, cfg, err)
		}
		if s := err.Error(); !strings.HasPrefix(s, path+": ") || !strings.Contains(s, text) || strings.Count(s, path) != 1 {
			t.Errorf("error = %s", s)
		}
	}
}
