package leak_test

import (
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/leak"
)

func filter() *leak.Filter {
	return leak.New([]string{"tok-s3cr3t", "tok-s3cr3t-longer", "short", "p\"w\nd-quoted"}, []string{"Mcp.Example.com", ""})
}

func TestText(t *testing.T) {
	const m = leak.Mask
	tests := []struct {
		name, text, want string
		kinds            string
	}{
		{"secret", "bad key tok-s3cr3t.", "bad key " + m + ".", "secret"},
		{"longer secret", "tok-s3cr3t-longer!", m + "!", "secret"},
		{"quoted secret", `{"key":"p\"w\nd-quoted"} and ` + "p\"w\nd-quoted", `{"key":"` + m + `"} and ` + m, "secret"},
		{"too short a secret", "short", "short", ""},
		{"bearer", "sent Authorization: Bearer abcdefghij123456", "sent Authorization: Bearer " + m, "secret"},
		{"in a URL", "dial postgres://app:hunter2@pg.example.com/x", "dial postgres://" + m + "@pg.example.com/x", "secret"},
		{"signed token", "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "got " + m, "secret"},

		{"ten net", "dial tcp 10.1.2.3:5432: connection refused", "dial tcp " + m + ": connection refused", "host"},
		{"other nets", "192.168.0.1, 172.16.5.4 172.32.5.4 169.254.169.254 100.64.0.1", m + ", " + m + " 172.32.5.4 " + m, "host"},
		{"loopback", "http://127.0.0.1:8080/x and http://localhost:3000", "http://" + m + "/x and http://" + m, "host"},
		{"IPv6", "[::1]:80, fe80::1%eth0, fd00::5 and 2001:db8::1, std::string", m + ", " + m + ", " + m + " and 2001:db8::1, std::string", "host"},
		{"names", "db.internal:5432, api.default.svc, api.default.svc.cluster.local, box.lan. x.corp", m + ", " + m + ", " + m + ", " + m + ". " + m, "host"},
		{"capitals", "at DB01.CORP now", "at " + m + " now", "host"},
		{"own host", "from mcp.EXAMPLE.com:443", "from " + m, "host"},
		{"other hosts", "mcp.example.community a.mcp.example.com.au example.com", "mcp.example.community a.mcp.example.com.au example.com", ""},
		{"no addresses", "v10.0.0.1.2 1.10.0.0.1 256.1.1.1 10.0.0 10.0.0.999 8.8.8.8 at 12:30:45", "v10.0.0.1.2 1.10.0.0.1 256.1.1.1 10.0.0 10.0.0.999 8.8.8.8 at 12:30:45", ""},
		{"no names", "com.example.internal.Foo settings.local.json the internal local lan /usr/local/bin localhosts obj.internal() .env.local", "com.example.internal.Foo settings.local.json the internal local lan /usr/local/bin localhosts obj.internal() .env.local", ""},

		{"go", "panic: boom\n\ngoroutine 1 [running]:\nmain.(*T).do(0x1, {0x2, 0x3})\n\t/src/app/main.go:12 +0x1d\ncreated by main.main in goroutine 1\n\t/src/app/main.go:7 +0x3\nexit status 2",
			"panic: boom\n\n" + m + "\nexit status 2", "stack_trace"},
		{"python", "Traceback (most recent call last):\n  File \"/srv/app/x.py\", line 3, in f\n    return g(1)\n           ^^^^\n  File \"x.py\", line 9, in g\n    raise ValueError('no')\nValueError: no",
			m + "\nValueError: no", "stack_trace"},
		{"python in one line", `Traceback (most recent call last):\n  File \"/srv/x.py\", line 3, in f\nKeyError`, m + `\n  ` + m + `\nKeyError`, "stack_trace"},
		{"java", "java.lang.IllegalStateException: no\n\tat com.acme.App.run(App.java:12)\n\tat java.base/java.lang.Thread.run(Unknown Source)\nCaused by: x.Y: z\n\t... 3 more",
			"java.lang.IllegalStateException: no\n" + m + "\nCaused by: x.Y: z\n\t" + m, "stack_trace"},
		{"node", "TypeError: x is not a function\n    at Object.run (/srv/app/index.js:10:5)\n    at async node:internal/process/task:1:2\n    at new A (file:///srv/a.mjs:1:2)",
			"TypeError: x is not a function\n    " + m, "stack_trace"},
		{".NET", "System.Exception: no\n   at Acme.App.Run(String a) in C:\\src\\App.cs:line 12\n   at Acme.App.Main(String[] args)\n--- End of stack trace from previous location ---",
			"System.Exception: no\n   " + m, "stack_trace"},
		{"place", "failed (/home/ci/app/x.go:12)", "failed (" + m + ")", "stack_trace"},
		{"no trace", "Meet at the bank (closed).\n    at noon\nFile the form, line 3. See /etc/app and main.go", "Meet at the bank (closed).\n    at noon\nFile the form, line 3. See /etc/app and main.go", ""},

		{"select", "failed: SELECT id, name FROM users WHERE id = 7", "failed: " + m, "sql"},
		{"lines", "query:\nSELECT id\n  FROM users\n  WHERE a = 1\n  ORDER BY b\nTry again.", "query:\n" + m + "\nTry again.", "sql"},
		{"small letters", "select u.id, u.name from users u where u.x=1", m, "sql"},
		{"insert", `INSERT INTO t (a) VALUES ('x'); then`, m, "sql"},
		{"postgres", "pq: duplicate key value violates unique constraint \"users_email_key\"\nDETAIL:  Key (email)=(a@b.c) already exists.", m, "sql"},
		{"relation", `ERROR: relation "users" does not exist`, "ERROR: " + m, "sql"},
		{"alchemy", "(psycopg2.errors.UndefinedTable) x\n[SQL: SELECT 1]\n[parameters: {'a': 1}]", m, "sql"},
		{"mysql", "SQLSTATE[42S02]: Base table or view not found: 1146", m, "sql"},
		{"sqlite", "no such table: users", m, "sql"},
		{"sentences", "Please select a value from the list, update the form and set a date, or delete it from the basket. Drop the table talk.", "Please select a value from the list, update the form and set a date, or delete it from the basket. Drop the table talk.", ""},

		{"several", "tok-s3cr3t at 10.0.0.1", m + " at " + m, "host secret"},
		{"nested", "SELECT a FROM b WHERE k = 'tok-s3cr3t'", m, "sql"},
		{"nothing", "Order 7 was not found; “ids” above 1000 are in the archive: größer", "Order 7 was not found; “ids” above 1000 are in the archive: größer", ""},
		{"empty", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found := leak.Counts{}
			if got := filter().Text(tt.text, found); got != tt.want {
				t.Errorf("\n got %q\nwant %q", got, tt.want)
			}
			var kinds []string
			for _, k := range []leak.Kind{leak.Host, leak.Secret, leak.SQL, leak.StackTrace, leak.Unexamined} {
				if found[k] > 0 {
					kinds = append(kinds, string(k))
				}
			}
			if got := strings.Join(kinds, " "); got != tt.kinds {
				t.Errorf("found %q, want %q", got, tt.kinds)
			}
		})
	}
}

func TestLongText(t *testing.T) {
	for name, long := range map[string]string{"plain": strings.Repeat("a", leak.MaxText), "cut in a rune": "a" + strings.Repeat("ß", leak.MaxText/2)} {
		found := leak.Counts{}
		got := filter().Text(long+" 10.0.0.1", found)
		if !strings.HasSuffix(got, leak.Mask) || strings.Contains(got, "10.0.0.1") || len(got) > leak.MaxText+len(leak.Mask) || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes, ends in %q", name, len(got), got[len(got)-20:])
		}
		if !maps.Equal(found, leak.Counts{leak.Unexamined: 1}) {
			t.Errorf("%s: found %v", name, found)
		}
	}
}

func TestWith(t *testing.T) {
	f := filter().With(func(s string) string { return strings.ReplaceAll(s, "fresh-token", "***") })
	found := leak.Counts{}
	if got := f.Text("fresh-token at 10.0.0.1", found); got != "*** at "+leak.Mask || found[leak.Secret] != 1 || found[leak.Host] != 1 {
		t.Errorf("got %q, found %v", got, found)
	}
	found = leak.Counts{}
	if got := f.Text("fresh-token", found); got != "***" || found[leak.Secret] != 1 {
		t.Errorf("got %q, found %v", got, found)
	}
	if got := f.Text("nothing", found); got != "nothing" || found[leak.Secret] != 1 {
		t.Errorf("got %q, found %v", got, found)
	}
}

func TestJSON(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing", ` { "a" : [ 1.0 , "x\u0079" , null ] } `, ` { "a" : [ 1.0 , "x\u0079" , null ] } `},
		{"at any depth", `{"a":[ {"b" : "at 10.0.0.1" ,"c":9007199254740993}],"d":"\u0074ok-s3cr3t"}`, `{"a":[ {"b" : "at [removed]" ,"c":9007199254740993}],"d":"[removed]"}`},
		{"names stay", `{"10.0.0.1":"10.0.0.1"}`, `{"10.0.0.1":"[removed]"}`},
		{"a string", `"10.0.0.1"`, `"[removed]"`},
		{"binary", `{"data":"tok-s3cr3t","blob":"tok-s3cr3t","text":"tok-s3cr3t","x":{"data":["tok-s3cr3t"]}}`, `{"data":"tok-s3cr3t","blob":"tok-s3cr3t","text":"[removed]","x":{"data":["[removed]"]}}`},
		{"half a pair", `["\ud800","\ud800 10.0.0.1"]`, `["\ud800","` + "\ufffd" + ` [removed]"]`},
		{"a name twice", `{"a":"10.0.0.1","a":"10.0.0.2"}`, `{"a":"[removed]","a":"[removed]"}`},
		{"number", `7`, `7`},
	}
	for _, tt := range tests {
		if got := filter().JSON(jsontext.Value(tt.in), true, leak.Counts{}); string(got) != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
	// All strings of a value together are bounded.
	many := jsontext.Value(`["` + strings.Repeat("a", leak.MaxText-1) + `","b","at 8.8.8.8","c"]`)
	found := leak.Counts{}
	if got := filter().JSON(many, false, found); !strings.HasSuffix(string(got), `a","b","[removed]","[removed]"]`) || found[leak.Unexamined] != 2 {
		t.Errorf("found %v: %s", found, got[leak.MaxText-10:])
	}
}

func FuzzFilter(f *testing.F) {
	for _, s := range []string{"tok-s3cr3t", "10.0.0.1:5", "[::1]:80", "a.b.internal", "SELECT a\n FROM b\n WHERE", "\tat a.b(C.java:1)", "goroutine 1 [x]:\nmain.f()\n\t/a.go:1",
		"Traceback (most recent call last):\n  File \"x\", line 1\n    x", "a://b:c@d", "tok-tok-s3cr3ts3cr3t", "\xff", "pq: x", "::", "select a.b from c"} {
		f.Add(s)
	}
	filter := filter()
	f.Fuzz(func(t *testing.T, s string) {
		found := leak.Counts{}
		got := filter.Text(s, found)
		if len(found) == 0 != (got == s) {
			t.Fatalf("found %v, and %q became %q", found, s, got)
		}
		if strings.Contains(got, "tok-s3cr3t") {
			t.Errorf("%q still holds the secret", got)
		}
		if utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("%q became %q", s, got)
		}
		if len(got) > len(s)+len(leak.Mask)*(1+len(s)/4) {
			t.Errorf("%d bytes became %d", len(s), len(got))
		}
		quoted, err := jsontext.AppendQuote(nil, s)
		if err != nil {
			return
		}
		if masked := filter.JSON(quoted, false, leak.Counts{}); len(found) == 0 && string(masked) != string(quoted) || !masked.IsValid() {
			t.Errorf("%s became %s", quoted, masked)
		}
	})
}

func BenchmarkText(b *testing.B) {
	text := strings.Repeat("Order 7 was not found; ids above 1000 are in the archive, see https://example.com/a: ask at the desk. ", 40)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		filter().Text(text, leak.Counts{})
	}
}
