package ledger

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestMask(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"plain words", "No flight was booked.", "No flight was booked."},
		{"number", "took 1532 ms, limit 1,000", "took <n> ms, limit <n>"},
		{"unit", "after 30s and 5MB", "after <n>s and <n>MB"},
		{"list of numbers", "one of [1, 2, 3]", "one of [<n>]"},
		{"id with a prefix", "invoice INV-1001 not found", "invoice INV-<n> not found"},
		{"uuid", "order 8f14e45f-ceea-467f-9a2b-0123456789ab is closed", "order <id> is closed"},
		{"hex", "commit 7f3a9bc0 and 0x1F", "commit <id> and <n>"},
		{"long hex", "sha 0123456789abcdef0123456789abcdef01234567", "sha <id>"},
		{"base64", "bad value dGhpcyBpcyBzZWNyZXQ+d2l0aC9zbGFzaA==", "bad value <id>"},
		{"base64 with slashes", "bad value abCD1234/EFgh5678ijKL+mnop==", "bad value <id>"},
		{"jwt", "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4fwpMeJ rejected", "token <value> rejected"},
		{"letters of a token", "key QwErTyUiOpAsDfGhJkLz is bad", "key <id> is bad"},
		{"letters without end", "key abcdefghijklmnopqrstuvwxyzabcdef is bad", "key <id> is bad"},
		{"class name", "java.lang.IllegalArgumentException in create_shipment_order", "java.lang.IllegalArgumentException in create_shipment_order"},
		{"date", "the argument date is 2020-01-01, which is not in the future", "the argument date is <time>, which is not in the future"},
		{"date and time", "at 2020-01-01T10:20:30.123Z or 2020-01-01 10:20", "at <time> or <time>"},
		{"date in words", "since Jan 2, 2026 and 3 March 2026", "since <time> and <time>"},
		{"time", "at 10:20:30 AM", "at <time>"},
		{"url", "cannot fetch https://user:pw@host.example/a/b?token=hunter2#x now", "cannot fetch <url> now"},
		{"url in brackets", "(see http://host.example/2020-01-01/x)", "(see <url>"},
		{"email", "no user ann.b+c@example.com", "no user <email>"},
		{"path", "cannot open /srv/docs/secret.txt: no such file", "cannot open <path>: no such file"},
		{"path with a date", "cannot open /srv/2020-01-01/x.txt", "cannot open <path>"},
		{"windows path", `cannot open C:\Users\ann\x.txt`, "cannot open <path>"},
		{"either or", "and/or", "and/or"},
		{"address", "dial tcp 10.0.0.1:8080: refused", "dial tcp <n>: refused"},
		{"double quotes", `unknown field "hunter2 and more" in request`, "unknown field <value> in request"},
		{"single quotes", "no such user 'ann b' here", "no such user <value> here"},
		{"backticks", "unknown column `pass`", "unknown column <value>"},
		{"typographic quotes", "unknown “hunter two” and «drei»", "unknown <value> and <value>"},
		{"apostrophe", "it doesn't exist in users' list", "it doesn't exist in users' list"},
		{"apostrophe in quotes", "bad 'can't do' here", "bad <value> here"},
		{"escaped quote", `bad "a\"hunter" here`, "bad <value> here"},
		{"quote not closed", `bad "hunter and all the rest`, "bad <value>"},
		{"single quote not closed", "bad 'hunter and all", "bad <value> and all"},
		{"list of quoted", `expected one of "a", "b", "c"`, "expected one of <value>"},
		{"json", `{"error":"not found","id":12}`, "{<value>:<n>}"},
		{"assignment", "user=ann&pw=hunter password=x", "user=<value> password=<value>"},
		{"assignment with spaces", "password = hunter", "password = <value>"},
		{"assignment apart", "password : hunter", "password : <value>"},
		{"named secret", "password: hunter, api_key:hunter", "password: <value>, api_key:<value>"},
		{"named in a sentence", "the password hunter2 is wrong", "the password <value> is wrong"},
		{"said in a sentence", "the password for ann was hunter2", "the password for ann was hunter<n>"},
		{"said of a secret", "your password is p@ss!word", "your password is <email>"},
		{"a secret that is wrong", "the password is wrong", "the password is wrong"},
		{"letters of hex", "sha deadbeefcafe", "sha <id>"},
		{"header", "Authorization: Bearer hunter", "Authorization: Bearer <value>"},
		{"bearer token", "got Bearer hunter2 instead", "got Bearer <value> instead"},
		{"bearer in a sentence", "a bearer token is required", "a bearer token is required"},
		{"token in a sentence", "the token expired", "the token expired"},
		{"control characters", "a\x1b[31mb\r\nc\x00d\u202ee\u200bf", "a [<n>mb c def"},
		{"invalid utf-8", "a\xff\xfeb", "a\uFFFDb"},
		{"other scripts", "请求失败：找不到编号为 12 的发票，请检查发票编号是否正确并稍后再试一次谢谢", "请求失败：找不到编号为 <n> 的发票，请检查发票编号是否正确并稍后再试一次谢谢"},
		{"empty", " \n ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Mask(c.text); got != c.want {
				t.Errorf("%q\n got %q\nwant %q", c.text, got, c.want)
			}
			settled(t, c.text)
		})
	}
}

// settled checks what holds for every text.
func settled(t *testing.T, text string) {
	t.Helper()
	got := Mask(text)
	if again := Mask(got); again != got {
		t.Errorf("%q: masked %q, and then %q", text, got, again)
	}
	if len(got) > MaxText || !utf8.ValidString(got) {
		t.Errorf("%q: %d bytes, %q", text, len(got), got)
	}
	if i := strings.IndexFunc(got, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%q: %q has a character that cannot be printed", text, got)
	}
	if strings.ContainsAny(got, "\"`0123456789") {
		t.Errorf("%q: a quote or a digit is left: %q", text, got)
	}
}

// TestMaskHidesSecrets goes through the forms that secrets have in the wild, wherever they stand in a sentence. All of
// them are made up.
func TestMaskHidesSecrets(t *testing.T) {
	for name, secret := range map[string]string{
		"cloud key id":    "AKIAQ3EXAMPLE7XYZABC",
		"cloud key":       "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		"forge token":     "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
		"chat token":      "xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcHrzqqgy",
		"payment key":     "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
		"maps key":        "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
		"base32":          "JBSWY3DPEHPK3PXP",
		"hex":             "9f86d081884c7d659a2feaa0c55ad015",
		"jwt":             "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
		"card":            "4111 1111 1111 1111",
		"connection":      "postgres://admin:letmein@db.internal:5432/prod",
		"user and server": "letmein@db.internal",
		"quoted":          `"correct horse battery"`,
		"single quotes":   `'correct horse battery'`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, frame := range []string{"%s", "The key %s is not valid.", "key=%s", "key: %s,", "(%s)", "[%s]", "invalid token:%s;", "%s: no such key", "<%s>", "a,%s,b", "one\n%s\ntwo"} {
				text := strings.Replace(frame, "%s", secret, 1)
				got := Mask(text)
				for _, piece := range strings.FieldsFunc(secret, func(r rune) bool { return strings.ContainsRune(" \"'", r) }) {
					for n := 0; n+4 <= len(piece); n += 4 {
						if four := piece[n : n+4]; strings.Contains(got, four) {
							t.Errorf("%q becomes %q, which has %q", text, got, four)
							break
						}
					}
				}
			}
		})
	}
}

func TestMaskIsBounded(t *testing.T) {
	for name, text := range map[string]string{
		"words":         strings.Repeat("word and ", 10000),
		"one word":      strings.Repeat("é", 100000),
		"letters":       strings.Repeat("a", 100000),
		"digits":        strings.Repeat("1 ", 100000),
		"placeholders":  strings.Repeat("<email> x ", 10000),
		"quotes":        strings.Repeat(`"`, 100001),
		"single quotes": strings.Repeat(`' `, 10000),
		"brackets":      strings.Repeat(`<`, 10000),
		"slashes":       strings.Repeat(`/`, 10000),
	} {
		t.Run(name, func(t *testing.T) { settled(t, text) })
	}
	// A secret across the border of what is looked at.
	text := strings.Repeat("x ", MaxInput/2-4) + "hunterhunterhunter"
	if got := Mask(text); strings.Contains(got, "hunt") {
		t.Errorf("masked: %q", got)
	}
}

func FuzzMask(f *testing.F) {
	for _, s := range []string{"a 1 'b' \"c\" /d/e f@g h://i 2020-01-01 10:20", "<n>'<id>=<", "Bearer x", "password: 'x", "'’‘“”„«»", "<url>/<path>1.<n>a", "1'a'2 Jan 3", "…<ema"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settled(t, text)
		for _, secret := range []string{"S3cr3tT0kenValue", "correct horse"} {
			for _, quoted := range []string{`"` + secret + `"`, "`" + secret + "`"} {
				if strings.ContainsAny(text, "\"`'‘“„«‹「") {
					continue // what is in quotes already turns what follows inside out
				}
				if got := Mask(text + " " + quoted); strings.Contains(got, secret) {
					t.Errorf("%q: %s is not hidden: %q", text, quoted, got)
				}
			}
		}
	})
}

func BenchmarkMask(b *testing.B) {
	for name, text := range map[string]string{
		"short": `No invoice "INV-1001" in ledger 7f3a9bc0 since 2020-01-01`,
		"4KiB":  strings.Repeat(`No invoice "INV-1001" in ledger 7f3a9bc0 since 2020-01-01. `, 80),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Mask(text)
			}
		})
	}
}
