package authz

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/configs"
)

func TestTokens(t *testing.T) {
	rs, ps, ec, ed := newRSA(t, "r", jwt.SigningMethodRS256), newRSA(t, "p", jwt.SigningMethodPS512), newEC(t, "e"), newEd(t, "d")
	short := signer{kid: "short", method: jwt.SigningMethodRS256, jwk: map[string]any{"kty": "RSA", "kid": "short", "n": b64(bytes.Repeat([]byte{0xff}, 128)), "e": "AQAB"}}
	odd := signer{jwk: map[string]any{"kty": "RSA", "kid": 7}}
	encrypts := newRSA(t, "enc", jwt.SigningMethodRS256)
	encrypts.jwk["use"] = "enc"
	stranger := newRSA(t, "r", jwt.SigningMethodRS256) // another key under a known id
	p, q := newIDP(t, rs, odd, ps, short, ec, ed, encrypts), newIDP(t, newEC(t, "e"))
	explicit := jwtConfig(q.URL)
	explicit.JWKSURL = q.URL + "/keys"
	log := &logBuffer{}
	a := newAuth(t, &configs.Auth{JWT: []configs.JWT{jwtConfig(p.URL), explicit}}, log)
	start(t, a)
	ready(t, a, p.URL, q.URL)
	a.issuers[p.URL].pace = rate.NewLimiter(0, 0) // no refresh here: it has a test of its own

	public := &rs.key.(*rsa.PrivateKey).PublicKey
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	hmac := func(secret []byte) string {
		tok := jwt.NewWithClaims(jwt.SigningMethodHS256, usual(p.URL, nil))
		tok.Header["kid"] = "r"
		text, err := tok.SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, usual(p.URL, nil)).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	critical := jwt.NewWithClaims(jwt.SigningMethodRS256, usual(p.URL, nil))
	critical.Header["kid"], critical.Header["crit"] = "r", []string{"x"}
	withCritical, err := critical.SignedString(rs.key)
	if err != nil {
		t.Fatal(err)
	}
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	good := rs.token(t, p.URL, nil)
	nameless := rs
	nameless.kid = ""
	unknown := rs
	unknown.kid = "marker-kid"
	wrongKind := rs
	wrongKind.kid = "e"

	tests := []struct {
		name, token string
		want        string // of the error; "" for accepted
	}{
		{"RSA", good, ""},
		{"RSA-PSS", ps.token(t, p.URL, nil), ""},
		{"EC", ec.token(t, p.URL, nil), ""},
		{"EdDSA", ed.token(t, p.URL, nil), ""},
		{"without a key id", nameless.token(t, p.URL, nil), ""},
		{"audiences as a list", rs.token(t, p.URL, map[string]any{"aud": []string{"other", audience}}), ""},
		{"just expired, within the leeway", rs.token(t, p.URL, map[string]any{"exp": in(-10 * time.Second)}), ""},
		{"not yet valid, within the leeway", rs.token(t, p.URL, map[string]any{"nbf": in(10 * time.Second)}), ""},

		{"other audience", rs.token(t, p.URL, map[string]any{"aud": "https://other.example.com/mcp"}), "another audience"},
		{"other audiences as a list", rs.token(t, p.URL, map[string]any{"aud": []string{"a", "b"}}), "another audience"},
		{"audience with a slash more", rs.token(t, p.URL, map[string]any{"aud": audience + "/"}), "another audience"},
		{"no audience", rs.token(t, p.URL, map[string]any{"aud": nil}), "lacks a claim"},
		{"empty audience", rs.token(t, p.URL, map[string]any{"aud": ""}), "lacks a claim"},
		{"audience of a wrong type", rs.token(t, p.URL, map[string]any{"aud": 7}), "lacks a claim"},
		{"unknown issuer", rs.token(t, "https://marker.example.com", nil), "not configured"},
		{"no issuer", rs.token(t, p.URL, map[string]any{"iss": nil}), "not configured"},
		{"issuer as a list", rs.token(t, p.URL, map[string]any{"iss": []string{p.URL}}), "not configured"},
		{"another configured issuer's name", rs.token(t, q.URL, nil), "does not have"},
		{"another issuer's key", ec.token(t, q.URL, nil), "signature is wrong"},
		{"expired", rs.token(t, p.URL, map[string]any{"exp": in(-time.Minute)}), "expired"},
		{"without an end", rs.token(t, p.URL, map[string]any{"exp": nil}), "lacks a claim"},
		{"an end that is a text", rs.token(t, p.URL, map[string]any{"exp": "marker"}), "not valid"},
		{"from the future", rs.token(t, p.URL, map[string]any{"nbf": in(time.Minute)}), "not valid yet"},
		{"none", none, "algorithm is not accepted"},
		{"none in capitals", rewrite(none, `{"alg":"NONE"}`), "not a token"},
		{"HMAC with the public key in DER", hmac(der), "algorithm is not accepted"},
		{"HMAC with the public key in PEM", hmac(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "algorithm is not accepted"},
		{"HMAC with PKCS 1", hmac(x509.MarshalPKCS1PublicKey(public)), "algorithm is not accepted"},
		{"HMAC with the modulus", hmac(public.N.Bytes()), "algorithm is not accepted"},
		{"an unknown algorithm", rewrite(good, `{"alg":"marker","kid":"r"}`), "not a token"},
		{"an algorithm of another kind of key", wrongKind.token(t, p.URL, nil), "cannot be used"},
		{"another algorithm of the same key", rewrite(good, `{"alg":"RS512","kid":"r"}`), "signature is wrong"},
		{"a key for encryption", encrypts.token(t, p.URL, nil), "cannot be used"},
		{"a key that is too short", rewrite(good, `{"alg":"RS256","kid":"short"}`), "does not have"},
		{"an unknown key", unknown.token(t, p.URL, nil), "does not have"},
		{"another key under a known id", stranger.token(t, p.URL, nil), "signature is wrong"},
		{"a key id that is no text", rewrite(good, `{"alg":"RS256","kid":7}`), "cannot be used"},
		{"a critical extension", withCritical, "extension"},
		{"claims of another token", splice(good, rs.token(t, p.URL, map[string]any{"sub": "root"})), "signature is wrong"},
		{"truncated", good[:len(good)-10], "signature is wrong"},
		{"no signature", good[:strings.LastIndexByte(good, '.')+1], "signature is wrong"},
		{"two parts", good[:strings.LastIndexByte(good, '.')], "unknown key"},
		{"garbage", "marker.marker!.marker", "not a token"},
		{"three dots", "...", "unknown key"},
		{"two dots", "..", "not a token"},
		{"a header that is a list", rewrite(good, `["marker"]`), "not a token"},
		{"a header that is no JSON", rewrite(good, `marker`), "not a token"},
		{"1 MiB", rs.token(t, p.URL, map[string]any{"x": strings.Repeat("x", 1<<20)}), "a token of"},
		{"no subject", rs.token(t, p.URL, map[string]any{"sub": nil}), `no claim "sub"`},
		{"an empty subject", rs.token(t, p.URL, map[string]any{"sub": ""}), `no claim "sub"`},
		{"a subject that is a number", rs.token(t, p.URL, map[string]any{"sub": 7}), `no claim "sub"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := a.Authenticate(bearer(tt.token))
			if tt.want == "" {
				if err != nil || c.Subject != "alice" || c.Issuer != p.URL || !c.InTeam("payments") || !c.HasScope("repo:read") || c.Claims["sub"] != "alice" {
					t.Errorf("got %+v, %v", c, err)
				}
				return
			}
			if !errors.Is(err, ErrBadCredentials) || !strings.Contains(err.Error(), tt.want) || !reflect.DeepEqual(c, Caller{}) {
				t.Errorf("got %+v, %v, want %q", c, err, tt.want)
			}
			leaks(t, err.Error(), tt.token)
		})
	}
	leaks(t, log.String(), good)
}

// leaks reports a piece of a token, or a marker planted in it, in a text.
func leaks(t *testing.T, text, token string) {
	t.Helper()
	if strings.Contains(text, "marker") {
		t.Errorf("the text repeats what the token says: %s", text)
	}
	for part := range strings.SplitSeq(token, ".") {
		for i := 0; i+12 <= len(part) && i < 400; i += 4 {
			if strings.Contains(text, part[i:i+12]) {
				t.Fatalf("the text has bytes of the token: %s", text)
			}
		}
	}
}

// rewrite gives a token another header.
func rewrite(token, header string) string {
	_, rest, _ := strings.Cut(token, ".")
	return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + rest
}

// splice gives a token the claims of another.
func splice(token, other string) string {
	a, b := strings.Split(token, "."), strings.Split(other, ".")
	return a[0] + "." + b[1] + "." + a[2]
}

func TestClaims(t *testing.T) {
	const doc = `{"list": ["b", "a", "b", 7, null], "text": "b a  b", "none": null, "number": 7, "object": {"a": 1},
		"nested": {"deep": {"teams": ["x"]}}, "https://example.com/teams": ["dotted"], "nested.deep.flat": ["flat"], "": ["empty"], "blank": ""}`
	var claims map[string]any
	if err := json.Unmarshal([]byte(doc), &claims); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, teams, scopes string }{
		{"list", "a b", "a b"},
		{"text", "b a  b", "a b"}, // the name of one team, and three scopes of which two are the same
		{"none", "", ""},
		{"number", "", ""},
		{"object", "", ""},
		{"nested.deep.teams", "x", "x"},
		{"nested.deep.flat", "flat", "flat"},
		{"nested.missing.teams", "", ""},
		{"nested.deep.teams.more", "", ""},
		{"https://example.com/teams", "dotted", "dotted"},
		{"missing", "", ""},
		{"blank", "", ""},
		{"", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := claim(claims, tt.name)
			if teams, scopes := strings.Join(set(names(v)), " "), strings.Join(set(words(v)), " "); teams != tt.teams || scopes != tt.scopes {
				t.Errorf("teams %q, scopes %q", teams, scopes)
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	key, digest := NewKey()
	other, otherDigest := NewKey()
	a := newAuth(t, &configs.Auth{APIKeys: []configs.APIKey{
		{Name: "first", SHA256: digest, Subject: "ci-bot", Teams: []string{"b", "a", "b"}, Scopes: []string{"y", "x"}},
		{Name: "second", SHA256: otherDigest, Subject: "other"},
	}}, &logBuffer{})
	want := Caller{Subject: "ci-bot", Teams: []string{"a", "b"}, Scopes: []string{"x", "y"}}
	tests := []struct {
		name   string
		values []string
		want   string // of the subject
		err    error
	}{
		{"right", []string{"Bearer " + key}, "ci-bot", nil},
		{"the last key", []string{"Bearer " + other}, "other", nil},
		{"scheme in lower case", []string{"bearer " + key}, "ci-bot", nil},
		{"more space", []string{"Bearer   " + key + " "}, "ci-bot", nil},
		{"none", nil, "", ErrNoCredentials},
		{"empty", []string{""}, "", ErrBadCredentials},
		{"no token", []string{"Bearer"}, "", ErrBadCredentials},
		{"blank token", []string{"Bearer  "}, "", ErrBadCredentials},
		{"no scheme", []string{key}, "", ErrBadCredentials},
		{"other scheme", []string{"Basic " + key}, "", ErrBadCredentials},
		{"two headers", []string{"Bearer " + key, "Bearer " + key}, "", ErrBadCredentials},
		{"two in one", []string{"Bearer " + key + ", Bearer " + key}, "", ErrBadCredentials},
		{"wrong", []string{"Bearer hg_wrong"}, "", ErrBadCredentials},
		{"prefix", []string{"Bearer " + key[:len(key)-1]}, "", ErrBadCredentials},
		{"longer", []string{"Bearer " + key + "A"}, "", ErrBadCredentials},
		{"other case", []string{"Bearer " + strings.ToLower(key)}, "", ErrBadCredentials},
		{"the digest", []string{"Bearer " + digest}, "", ErrBadCredentials},
		{"a token without an issuer", []string{"Bearer e30.e30.e30"}, "", ErrBadCredentials},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			if tt.values != nil {
				h["Authorization"] = tt.values
			}
			c, err := a.Authenticate(h)
			if c.Subject != tt.want || !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Errorf("got %+v, %v", c, err)
			}
			if tt.want == "ci-bot" && !reflect.DeepEqual(c, want) {
				t.Errorf("caller %+v, want %+v", c, want)
			}
			if err != nil && (strings.Contains(err.Error(), key[:8]) || strings.Contains(err.Error(), digest[:8])) {
				t.Errorf("the error repeats the key: %v", err)
			}
		})
	}
}

func TestNewKey(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		key, digest := NewKey()
		if seen[key] || !strings.HasPrefix(key, "hg_") || len(key) != 55 || len(digest) != 64 || digest != strings.ToLower(digest) {
			t.Fatalf("key of %d characters, digest %q", len(key), digest)
		}
		seen[key] = true
	}
}

func TestNewAuthenticatorBadDigest(t *testing.T) {
	for _, digest := range []string{"", "hg_marker", strings.Repeat("0", 62), strings.Repeat("g", 64)} {
		_, err := NewAuthenticator(&configs.Auth{APIKeys: []configs.APIKey{{Name: "ci", SHA256: digest}}}, http.DefaultClient, nil)
		if err == nil || digest != "" && strings.Contains(err.Error(), digest) {
			t.Errorf("digest %q: %v", digest, err)
		}
	}
}
