package configs

import (
	"bytes"
	"encoding/json"
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

func TestReferences(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, double := write("plain", "from file\n"), write("double", "two\n\n")
	o := Options{Environ: []string{"SET=value", "EMPTY=", "NESTED=${env:SET}", "N=7", "B=true", "D=7s"}}
	tests := []struct{ name, in, want string }{
		{"nothing", "plain", "plain"},
		{"variable", "a ${env:SET} b", "a value b"},
		{"twice", "${env:SET}${env:SET}", "valuevalue"},
		{"empty but set", "[${env:EMPTY}]", "[]"},
		{"not expanded again", "${env:NESTED}", "${env:SET}"},
		{"file", "${file:" + plain + "}", "from file"},
		{"one newline only", "${file:" + double + "}", "two\n"},
		{"escaped", "$${env:SET}", "${env:SET}"},
		{"two dollars", "a$$b", "a$b"},
		{"lone dollar", "a$b$", "a$b$"},
		{"dollars and a reference", "$$$${env:SET}", "$${env:SET}"},
		{"dollar before a reference", "$$${env:SET}", "$value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			quoted, _ := json.Marshal(tt.in)
			cfg := mustParse(t, "c.json", fmt.Sprintf(`{"upstreams": {"a": {"command": "s", "args": ["x", %s], "env": {"A": %s}}}}`, quoted, quoted), o)
			u := cfg.Upstreams["a"]
			if u.Args[1] != tt.want || u.Env["A"] != tt.want {
				t.Errorf("args %q, env %q, want %q", u.Args[1], u.Env["A"], tt.want)
			}
		})
	}

	t.Run("every type", func(t *testing.T) {
		cfg := mustParse(t, "c.yaml", `{lists: {page_size: "${env:N}"}, drain: "${env:D}", max_body: "${env:N}KiB", upstreams: {a: {command: "${env:SET}", disabled: "${env:B}"}}}`, o)
		if cfg.Lists.PageSize != 7 || cfg.Drain != 7*time.Second || cfg.MaxBody != 7<<10 || !cfg.Upstreams["a"].Disabled || cfg.Upstreams["a"].Command != "value" {
			t.Errorf("configuration = %+v", cfg)
		}
	})
	t.Run("files to watch", func(t *testing.T) {
		path := write("c.yaml", "upstreams: {a: {command: s, env: {A: '${file:"+plain+"}', B: '${file:"+plain+"}'}}}")
		cfg, err := Load(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{path, plain}; !slices.Equal(cfg.Files(), want) {
			t.Errorf("files = %q, want %q", cfg.Files(), want)
		}
	})
	t.Run("too large a file", func(t *testing.T) {
		path := write("large", strings.Repeat("x", maxValueFile+1))
		all := parseErrors(t, "c.yaml", "listen: '${file:"+path+"}'", Options{})
		if want := fmt.Sprintf("listen: the file %q cannot be read: larger than 1MiB", path); all.Error() != want {
			t.Errorf("errors = %v, want %s", all, want)
		}
	})
}

const marker = "S3CRETMARK"

// TestSecretsStayInside plants a marker wherever a secret may stand, once in a configuration that is right and
// once at every place where it makes one wrong.
func TestSecretsStayInside(t *testing.T) {
	secretFile := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secretFile, []byte(marker+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Environ: []string{"MARK=" + marker, "PORT_MARK=99999" + marker}}
	good := mustParse(t, "c.yaml", `
upstreams:
  web:
    url: https://`+marker+`:`+marker+`@mcp.example.com/mcp?key=`+marker+`&`+marker+`
    headers: {Authorization: Bearer `+marker+`, X-Key: "${env:MARK}"}
    prefix: ${env:MARK}
    repeatable: ["${env:MARK}"]
    forward_headers: ["x-${env:MARK}"]
  login:
    url: https://mcp.example.com/mcp
    oauth: {grant: client_credentials, client_id: a, client_secret: `+marker+`, token_url: "https://u:`+marker+`@idp.example.com/token?k=`+marker+`"}
  url:
    url: https://mcp.example.com/${file:`+secretFile+`}
  child:
    command: /bin/${env:MARK}
    args: ["--token=${env:MARK}", "${file:`+secretFile+`}"]
    env: {TOKEN: `+marker+`, OTHER: "${env:MARK}"}
    cwd: /${env:MARK}
allowed_hosts: ["${env:MARK}"]
`, o)
	if !strings.Contains(good.Upstreams["child"].Args[0], marker) {
		t.Fatalf("the marker did not reach the configuration")
	}
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "config", good, "upstream", good.Upstreams["web"], "oauth", good.Upstreams["login"].OAuth)
	asJSON, err := json.Marshal(map[string]any{"c": good, "u": good.Upstreams, "o": good.Upstreams["login"].OAuth})
	if err != nil {
		t.Fatal(err)
	}
	for how, text := range map[string]string{
		"Redacted": fmt.Sprintf("%#v", good.Redacted()),
		"%v":       fmt.Sprintf("%v %v", good, good.Upstreams),
		"%+v":      fmt.Sprintf("%+v %+v %+v", good, good.Upstreams["web"], good.Upstreams["login"].OAuth),
		"%#v":      fmt.Sprintf("%#v %#v %#v", good, good.Upstreams["child"], good.Upstreams["login"].OAuth),
		"%s":       fmt.Sprintf("%s %q", good, good),
		"slog":     logged.String(),
		"JSON":     string(asJSON),
	} {
		if strings.Contains(strings.ToUpper(text), marker) {
			t.Errorf("%s shows a secret: %s", how, text)
		}
		if !strings.Contains(text, "***") && how != "%v" {
			t.Errorf("%s shows nothing in place of secrets: %s", how, text)
		}
	}

	bad := []string{
		"upstreams: {a: {url: 'https://mcp.example.com', oauth: {grant: x, client_id: a, client_secret: '" + marker + "\\n'}}}",
		"upstreams: {a: {url: 'https://mcp.example.com', oauth: {client_secret: ['" + marker + "'], token_url: 'x:" + marker + "'}}}",
		"upstreams: {a: {url: 'https://mcp.example.com', oauth: {grant: '${env:MARK}', scopes: ['${env:MARK} b']}, session: '${env:MARK}', trust: '${env:MARK}'}}",
		"listen: ${env:MARK}", "admin_listen: 127.0.0.1:${env:PORT_MARK}", "drain: ${env:MARK}", "max_body: ${env:MARK}",
		"lists: {page_size: '${env:MARK}'}", "log: {level: '${env:MARK}'}", "log: {format: '${env:MARK}'}",
		"naming: {separator: '${env:MARK}'}", "allowed_hosts: ['${env:MARK}!']", "allowed_origins: ['${env:MARK}']",
		"upstreams: {a: {url: '${env:MARK}'}}", "upstreams: {a: {url: 'https://" + marker + "@a b/'}}",
		"upstreams: {a: {url: 'https://x:" + marker + "@mcp.example.com:x/'}}", "upstreams: {a: {url: 'http:" + marker + "'}}",
		"upstreams: {a: {command: s, type: '${env:MARK}'}}", "upstreams: {a: {command: s, era: '${env:MARK}'}}",
		"upstreams: {a: {command: s, prefix: '${env:MARK} x'}}", "upstreams: {a: {command: s, repeatable: ['${env:MARK}[']}}",
		"upstreams: {a: {command: s, disabled: '${env:MARK}'}}", "upstreams: {a: {command: s, args: ['" + marker + "', 1]}}",
		"upstreams: {a: {command: s, env: ['A=" + marker + "']}}", "upstreams: {a: {command: s, env: {A: ['" + marker + "']}}}",
		"upstreams: {a: {command: s, env: {A: '${" + marker + "'}}}", "upstreams: {a: {command: s, env: {A: '${" + marker + "}'}}}",
		"upstreams: {a: {url: 'https://mcp.example.com', headers: 'Authorization: " + marker + "'}}",
		"upstreams: {a: {url: 'https://mcp.example.com', headers: {A: \"" + marker + "\\n\"}}}",
		"upstreams: {a: {url: 'https://mcp.example.com', forward_headers: ['${env:MARK} x']}}",
		"upstreams: {a: {url: 'https://mcp.example.com', forward_headers: ['x${env:MARK}', 'x${env:MARK}']}}",
		"upstreams: {a: {command: s, env: {A: *" + marker + "}}}", "upstreams: {a: {command: s, env: {A: '" + marker + "}}}",
		"upstreams: {a: {command: s, env: {A: !!int " + marker + "}}}", marker, "- " + marker,
	}
	for _, text := range bad {
		if got := parseErrors(t, "c.yaml", text, o).Error(); strings.Contains(strings.ToUpper(got), marker) {
			t.Errorf("the errors of %s show the secret: %s", text, got)
		}
	}
	for name, text := range map[string]string{
		"a.json": `{"a": "` + marker + `\q"}`, "b.json": `{"a": ` + marker + `}`, "c.json": `{"a": "` + marker,
		"a.toml": "a = '" + marker, "b.toml": "a = " + marker, "c.toml": "a = \"" + marker + "\\q\"",
	} {
		if got := parseErrors(t, name, text, o).Error(); strings.Contains(got, marker) {
			t.Errorf("the errors of %s show the secret: %s", text, got)
		}
	}
}

func TestRedactURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://mcp.example.com/mcp":              "https://mcp.example.com/mcp",
		"https://user@mcp.example.com:8443/a%2Fb":  "https://***@mcp.example.com:8443/a%2Fb",
		"https://u:p@mcp.example.com/?a=1&b&c=2=3": "https://***@mcp.example.com/?a=***&***&c=***",
		"mailto:a@example.com":                     "***",
		"https://a b/":                             "***",
		"":                                         "",
	} {
		if got := redactURL(in); got != want {
			t.Errorf("redactURL(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestHostFiles(t *testing.T) {
	o := Options{Environ: []string{"TOKEN=t0"}}
	for _, spelling := range []string{"http", "HTTP", "streamable-http", "streamableHttp", "streamable_http", ""} {
		t.Run("type "+spelling, func(t *testing.T) {
			given := ""
			if spelling != "" {
				given = `"type": "` + spelling + `", `
			}
			for _, key := range []string{"mcpServers", "servers", "upstreams"} {
				cfg := mustParse(t, "c.json", `{"`+key+`": {"a": {`+given+`"url": "https://mcp.example.com/mcp"}}}`, o)
				if u := cfg.Upstreams["a"]; u.Type != TypeHTTP || u.TypeGiven != (spelling != "") || len(cfg.Warnings) > 0 {
					t.Errorf("%s gives %v, %t, %q", key, u, u.TypeGiven, cfg.Warnings)
				}
			}
		})
	}
	t.Run("variables", func(t *testing.T) {
		cfg := mustParse(t, "c.json", `{"mcpServers": {"a": {"command": "s", "args": ["${TOKEN}", "${env:TOKEN}", "$${TOKEN}", "$TOKEN"]}}}`, o)
		if want := []string{"t0", "t0", "${TOKEN}", "$TOKEN"}; !slices.Equal(cfg.Upstreams["a"].Args, want) {
			t.Errorf("args = %q, want %q", cfg.Upstreams["a"].Args, want)
		}
	})
	t.Run("defaults of variables", func(t *testing.T) {
		cfg := mustParse(t, "c.json", `{"mcpServers": {"a": {"command": "s", "args": ["${NONE:-d}", "${TOKEN:-d}", "${env:NONE:-a:-b}", "${NONE:-}"]}}}`, o)
		if want := []string{"d", "t0", "a:-b", ""}; !slices.Equal(cfg.Upstreams["a"].Args, want) || len(cfg.Warnings) > 0 {
			t.Errorf("args = %q, want %q; %q", cfg.Upstreams["a"].Args, want, cfg.Warnings)
		}
	})
	t.Run("variables without a value", func(t *testing.T) {
		for _, ref := range []string{"${workspaceFolder}", "${input:token}", "${env:NONE}", "${NONE}"} {
			cfg := mustParse(t, "c.json", `{"mcpServers": {"a": {"command": "s", "args": ["x", "`+ref+`"]}, "b": {"command": "s"}}}`, o)
			if cfg.Upstreams["a"] != nil || cfg.Upstreams["b"] == nil || !slices.Equal(cfg.Warnings, []string{"mcpServers.a: left out, since " + ref + " has no value here"}) {
				t.Errorf("%s: %v %q", ref, cfg, cfg.Warnings)
			}
		}
	})
	t.Run("dialects", func(t *testing.T) {
		for doc, want := range map[string]string{
			`{"mcpServers": {"a": {"httpUrl": "https://mcp.example.com/mcp", "trust": true, "timeout": 600, "oauth": {"enabled": true}}}}`: "https://mcp.example.com/mcp",
			`{"mcpServers": {"a": {"httpUrl": "https://mcp.example.com/mcp", "url": "https://mcp.example.com/sse"}}}`:                      "https://mcp.example.com/mcp",
			`{"mcpServers": {"a": {"serverUrl": "https://mcp.example.com/mcp", "disabled": false}}}`:                                       "https://mcp.example.com/mcp",
			`{"context_servers": {"a": {"source": "custom", "command": "s", "args": ["x"], "env": {"A": "b"}}}}`:                           "s [x] b",
			`{"context_servers": {"a": {"command": {"path": "s", "args": ["x"], "env": {"A": "b"}}, "settings": {}}}}`:                     "s [x] b",
			`{"mcpServers": {"a": {"command": "s", "args": ["x"], "env": {"A": "b"}, "enabled": true, "trust": false}}}`:                   "s [x] b",
		} {
			u := mustParse(t, "c.json", doc, o).Upstreams["a"]
			got := u.URL
			if u.Command != "" {
				got = fmt.Sprint(u.Command, " ", u.Args, " ", u.Env["A"])
			}
			if got != want || u.Disabled {
				t.Errorf("%s gives %s, disabled %t", doc, got, u.Disabled)
			}
		}
	})
	t.Run("foreign keys", func(t *testing.T) {
		cfg := mustParse(t, "c.json", `{"globalShortcut": "x", "inputs": [], "mcpServers": {"a": {"command": "s", "autoApprove": ["`+marker+`"],
			"alwaysAllow": [], "timeout": 60, "description": "x", "envFile": ".env", "disabledTools": [], "transportType": "stdio", "name": "x",
			"gallery": true, "version": "1", "dev": {}, "tools": ["*"]}}}`, o)
		if len(cfg.Warnings) != 14 {
			t.Errorf("%d warnings, want 14: %q", len(cfg.Warnings), cfg.Warnings)
		}
		if !slices.Contains(cfg.Warnings, "mcpServers.a.timeout: ignored, since it means nothing to Headgate") || strings.Contains(fmt.Sprint(cfg.Warnings), marker) {
			t.Errorf("warnings = %q", cfg.Warnings)
		}
	})
	t.Run("own keys beside", func(t *testing.T) {
		cfg := mustParse(t, "c.json", `{"drain": "1s", "mcpServers": {"a": {"command": "s", "call_timeout": "1s"}}}`, o)
		if cfg.Drain != time.Second || cfg.Upstreams["a"].CallTimeout != time.Second {
			t.Errorf("configuration = %v", cfg)
		}
	})
	t.Run("enabled", func(t *testing.T) {
		cfg := mustParse(t, "c.json", `{"mcpServers": {"a": {"command": "s", "enabled": false}, "b": {"command": "s", "enabled": true}}}`, o)
		if !cfg.Upstreams["a"].Disabled || cfg.Upstreams["b"].Disabled || len(cfg.Warnings) != 2 {
			t.Errorf("configuration = %v", cfg)
		}
	})
	t.Run("nothing in it", func(t *testing.T) {
		if cfg := mustParse(t, "c.json", `{"mcpServers": null}`, o); len(cfg.Upstreams) != 0 {
			t.Errorf("configuration = %v", cfg)
		}
	})
	t.Run("yaml and toml", func(t *testing.T) {
		for name, text := range map[string]string{"c.yaml": "mcpServers: {a: {command: s}}", "c.toml": "[mcpServers.a]\ncommand = 's'"} {
			if cfg := mustParse(t, name, text, o); cfg.Upstreams["a"] == nil {
				t.Errorf("%s gives %v", name, cfg)
			}
		}
	})
}

func TestHostID(t *testing.T) {
	for in, want := range map[string]string{
		"github":                             "github",
		"My Server!":                         "my-server",
		"@scope/pkg":                         "scope-pkg",
		"a__b":                               "a-b",
		"-a-":                                "a",
		"日本":                                 "",
		"abcdefghij-abcdefghij-abcdefghi-xy": "abcdefghij-abcdefghij-abcdefghi",
		strings.Repeat("x", 40):              strings.Repeat("x", 32),
	} {
		if got := hostID(in); got != want {
			t.Errorf("hostID(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPlainJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": "//x /* y */ ,}", } // c`: `{"a": "//x /* y */ ,}"  }     `,
		"[1, /* a\nb */ ]":               "[1      \n     ]",
		`{"a": "\"//"}`:                  `{"a": "\"//"}`,
		`[,]`:                            `[,]`,
		`[1,,]`:                          `[1,,]`,
		`{"a": 1, "b": [2, 3,],}`:        `{"a": 1, "b": [2, 3 ] }`,
		`{} /* open`:                     `{} /* open`,
		`"open \`:                        `"open \`,
	} {
		if got := string(plainJSON([]byte(in))); got != want {
			t.Errorf("plainJSON(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestWorldReadableFile(t *testing.T) {
	const literal = "upstreams: {a: {url: 'https://mcp.example.com/mcp', headers: {Authorization: Bearer x}}}"
	tests := []struct {
		name, text string
		mode       os.FileMode
		warns      bool
	}{
		{"readable", literal, 0o644, true},
		{"private", literal, 0o600, false},
		{"readable without credentials", strings.Replace(literal, "Authorization", "X-Version", 1), 0o644, false},
		{"readable with a reference", strings.Replace(literal, "Bearer x", "'${env:T}'", 1), 0o644, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			cfg, err := Load(path, Options{Environ: []string{"T=x"}})
			if err != nil {
				t.Fatal(err)
			}
			if warned := len(cfg.Warnings) > 0; warned != tt.warns {
				t.Errorf("warnings = %q", cfg.Warnings)
			}
		})
	}
}

// TestEqualSeesEverySetting changes each exported field in turn.
func TestEqualSeesEverySetting(t *testing.T) {
	typ := reflect.TypeFor[Upstream]()
	for i := range typ.NumField() {
		if !typ.Field(i).IsExported() {
			continue
		}
		t.Run(typ.Field(i).Name, func(t *testing.T) {
			a, b := defaultUpstream("a"), defaultUpstream("a")
			if !a.Equal(b) {
				t.Fatal("two defaults differ")
			}
			switch v := reflect.ValueOf(b).Elem().Field(i); v.Kind() {
			case reflect.String:
				v.SetString("other")
			case reflect.Bool:
				v.SetBool(!v.Bool())
			case reflect.Int, reflect.Int64:
				v.SetInt(v.Int() + 1)
			case reflect.Slice:
				if v.Type() == reflect.TypeFor[[]Guidance]() {
					v.Set(reflect.ValueOf([]Guidance{{Match: "x"}}))
					break
				}
				v.Set(reflect.ValueOf([]string{"x"}))
			case reflect.Map:
				v.Set(reflect.ValueOf(map[string]string{"x": "y"}))
			case reflect.Struct:
				for n := range v.NumField() {
					switch part := v.Field(n); part.Kind() {
					case reflect.Slice:
						part.Set(reflect.ValueOf([]string{"x"}))
					case reflect.String:
						part.SetString("other")
					default:
						part.SetInt(part.Int() + 1)
					}
					if a.Equal(b) || b.Equal(a) {
						t.Errorf("the change of %s goes unseen", v.Type().Field(n).Name)
					}
					if n < v.NumField()-1 {
						v.Set(reflect.ValueOf(a).Elem().Field(i))
					}
				}
			default:
				t.Fatalf("no change for a %s", v.Kind())
			}
			if a.Equal(b) || b.Equal(a) {
				t.Error("the change goes unseen")
			}
		})
	}
	empty := defaultUpstream("a")
	empty.Args, empty.Env = []string{}, map[string]string{}
	if !empty.Equal(defaultUpstream("a")) {
		t.Error("empty and absent differ")
	}
	var none *Upstream
	if none.Equal(empty) || empty.Equal(nil) || !none.Equal(nil) {
		t.Error("nil is not told apart")
	}
}

func TestRepeatableTool(t *testing.T) {
	tests := []struct {
		glob, name string
		want       bool
	}{
		{"get_*", "get_user", true},
		{"get_*", "get_a/b.c", true},
		{"get_*", "set_user", false},
		{"*", "", true},
		{"a/?", "a/b", true},
		{"a?b", "a/b", true},
		{"[a-c]x", "bx", true},
		{`a\*`, "a*", true},
		{`a\*`, "ab", false},
		{"get", "get_user", false},
		{"[", "[", false},
	}
	for _, tt := range tests {
		u := &Upstream{Repeatable: []string{"never", tt.glob}}
		if got := u.RepeatableTool(tt.name); got != tt.want {
			t.Errorf("%q matches %q: %t, want %t", tt.glob, tt.name, got, tt.want)
		}
	}
	if (&Upstream{}).RepeatableTool("x") {
		t.Error("no globs match something")
	}
}

func TestIsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.9.9.9": true, "localhost:1": true, "LOCALHOST": true, "[::1]:80": true, "::1": true,
		"[::1]": true, "[::ffff:127.0.0.1]:80": true,
		"": false, ":8080": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false, "localhost.example.com:80": false,
		"127.0.0.1.example.com:80": false, "gw.example.com": false,
	} {
		if got := IsLoopback(addr); got != want {
			t.Errorf("IsLoopback(%q) = %t, want %t", addr, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{
		"4MiB": 4 << 20, "512KiB": 512 << 10, "1GB": 1e9, "2gib": 2 << 30, "7": 7, "7B": 7, "1 KB": 1000, "0": 0,
		"": -1, "MiB": -1, "-1": -1, "1.5MiB": -1, "9999999999GiB": -1, "4M": -1, "1e3": -1,
	} {
		got, ok := parseSize(in)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("parseSize(%q) = %d, %t, want %d", in, got, ok, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 1: "1", 1024: "1KiB", 1e9: "1000000000", 32 << 20: "32MiB", 3 << 30: "3GiB"} {
		got := formatSize(n)
		if back, ok := parseSize(got); got != want || !ok || back != n {
			t.Errorf("formatSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestDurationsPrintAsWritten(t *testing.T) {
	for _, s := range []string{"0s", "500ms", "10s", "1m", "1m30s", "10m", "1h", "1h30m", "20h"} {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := formatDuration(d); got != s {
			t.Errorf("formatDuration(%s) = %q", s, got)
		}
	}
}

func TestNearest(t *testing.T) {
	candidates := []string{"url", "env", "call_timeout", "max_call_timeout", "disabled"}
	for in, want := range map[string]string{
		"uri": "url", "URL": "url", "call_timout": "call_timeout", "maxCallTimeout": "max_call_timeout", "disable": "disabled",
		"timeout": "", "dev": "", "x": "", "": "", "description": "",
	} {
		if got := nearest(in, candidates); got != want {
			t.Errorf("nearest(%q) = %q, want %q", in, got, want)
		}
	}
}
