package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
)

const ownAudience = "https://gw.example.com/mcp"

// issuer is an authorization server that knows Headgate as a client.
func issuer(secret string) *mcptest.AuthServer {
	return &mcptest.AuthServer{Clients: map[string]string{"gw": secret}}
}

// bearerOf is the Authorization header of somebody with a token for Headgate.
func bearerOf(as *mcptest.AuthServer, name string) string {
	return "Authorization: Bearer " + as.Sign(map[string]any{"sub": name, "aud": ownAudience})
}

const apiKey = "hg_a-key-of-headgates-own"

// launchFor runs a gateway that takes tokens of an authorization server, and one API key.
func launchFor(t *testing.T, as *mcptest.AuthServer, o Options, upstreams string, more ...string) *gate {
	t.Helper()
	digest := sha256.Sum256([]byte(apiKey))
	doc := fmt.Sprintf(`{%s"auth":{"jwt":{"issuer":%q,"audience":%q},"api_keys":[{"name":"k","subject":"keeper","sha256":%q}]},"upstreams":%s}`,
		strings.Join(append(more, ""), ","), as.URL, ownAudience, hex.EncodeToString(digest[:]), upstreams)
	cfg, err := configs.Parse("test.json", []byte(doc), configs.Options{CheckRules: authz.CheckRules})
	if err != nil {
		t.Fatal(err)
	}
	g := launch(t, cfg, o)
	poll(t, "the keys of the issuer", func() bool {
		_, err := g.Identify(as.Sign(map[string]any{"sub": "x", "aud": ownAudience}))
		return !errors.Is(err, authz.ErrCannotVerify)
	})
	t.Cleanup(g.issuers.CloseIdleConnections)
	return g
}

// whose is a server that says by whose token, and on which session, a call came in, and lets nobody in who
// has no token for it.
func whose(as *mcptest.AuthServer, era, audience string) *mcptest.Server {
	return &mcptest.Server{Era: era, NoGET: true,
		Tools: []mcptest.Tool{{Def: `{"name":"whose","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
			claims, err := as.Bearer(c.Header, audience)
			c.Structured(fmt.Sprintf(`{"sub":%q,"session":%q,"error":%q}`, claims["sub"], c.Header.Get("Mcp-Session-Id"), fmt.Sprint(err)))
		}}},
		OnHTTP: func(w http.ResponseWriter, r *http.Request) bool {
			if _, err := as.Bearer(r.Header, audience); err != nil {
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			return false
		}}
}

func exchanging(as *mcptest.AuthServer, secret string) string {
	return fmt.Sprintf(`"oauth":{"grant":"token_exchange","token_url":%q,"client_id":"gw","client_secret":%q,"audience":"api"}`, as.URL+"/token", secret)
}

// callBy calls a tool in one of the eras, with a header that says who it is.
func (g *gate) callBy(auth, session, tool string) string {
	g.t.Helper()
	if session != "" {
		return g.post(legacyBody("1", "tools/call", `{`+callParams(tool, "")+`}`), session, auth).message()
	}
	return g.post(modernBody("1", "tools/call", callParams(tool, "")), modernHeaders("tools/call", "Mcp-Name: "+tool, auth)...).message()
}

// openBy opens a session of somebody's.
func (g *gate) openBy(auth string) (session string) {
	g.t.Helper()
	r := g.post(initializeBody, auth)
	id := r.header.Get(sessionHeader)
	if r.status != http.StatusOK || id == "" {
		g.t.Fatalf("initialize: %d %s", r.status, r.body)
	}
	return sessionHeader + ": " + id
}

// TestCallersCredentials: in each of the four combinations of eras, a call carries what the caller's token
// was exchanged for, or the token itself, and a caller that has none is told who can act.
func TestCallersCredentials(t *testing.T) {
	as := issuer("gw-secret").Start(t)
	modern, legacy := whose(as, mcptest.Modern, "api"), whose(as, mcptest.Legacy, "api")
	same := whose(as, mcptest.Legacy, ownAudience)
	operator := as.Sign(map[string]any{"sub": "operator", "aud": ownAudience})
	g := launchFor(t, as, Options{}, fmt.Sprintf(`{"m":%s,"l":%s,"s":%s}`, entry(modern.StartHTTP(t), exchanging(as, "gw-secret")),
		entry(legacy.StartHTTP(t), exchanging(as, "gw-secret")),
		entry(same.StartHTTP(t), `"trust":"same-audience","forward_headers":["Authorization"],"headers":{"Authorization":"Bearer `+operator+`"}`)))
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			name := fmt.Sprintf("user-%d", n)
			auth := bearerOf(as, name)
			opened := g.openBy(auth)
			sessions := map[string]bool{}
			for _, session := range []string{"", opened, "", opened} {
				for _, tool := range []string{"m_whose", "l_whose", "s_whose"} {
					got := g.callBy(auth, session, tool)
					if who := at(t, got, "result", "structuredContent", "sub"); who != `"`+name+`"` {
						t.Errorf("%s as %s: %s", tool, name, got)
					}
					sessions[tool+at(t, got, "result", "structuredContent", "session")] = true
				}
			}
			if len(sessions) != 3 {
				t.Errorf("%s had the sessions %v", name, sessions)
			}
		})
	}
	wg.Wait()
	if n := as.CountTokens(mcptest.GrantExchange); n != 40 {
		t.Errorf("%d exchanges for 20 callers and 2 servers", n)
	}
	if n := same.Sessions() + legacy.Sessions(); n != 42 {
		t.Errorf("%d sessions", n)
	}
	keeper := "Authorization: Bearer " + apiKey
	for _, tool := range []string{"m_whose", "l_whose", "s_whose"} {
		got := g.callBy(keeper, "", tool)
		if at(t, got, "result", "_meta", "dev.headgate/failure", "reason") != `"credentials_refused"` ||
			at(t, got, "result", "_meta", "dev.headgate/failure", "outcome") != `"not_started"` || !strings.Contains(got, "sign in again") {
			t.Errorf("%s without a token: %s", tool, got)
		}
	}
}

// TestSessionPerClient: the session that a server has for one client ends with that client's own, however
// that ends.
func TestSessionPerClient(t *testing.T) {
	as := issuer("gw-secret").Start(t)
	s := whose(as, mcptest.Legacy, "api")
	g := launchFor(t, as, Options{}, fmt.Sprintf(`{"x":%s}`, entry(s.StartHTTP(t), exchanging(as, "gw-secret"), `"session":"client"`)), `"session_idle":"30m"`)
	auth := bearerOf(as, "alice")
	seen := map[string]bool{}
	call := func(session string) {
		t.Helper()
		got := g.callBy(auth, session, "x_whose")
		if at(t, got, "result", "structuredContent", "sub") != `"alice"` {
			t.Errorf("%s", got)
		}
		seen[at(t, got, "result", "structuredContent", "session")] = true
	}
	first, second := g.openBy(auth), g.openBy(auth)
	for _, session := range []string{first, second, "", first, second, ""} {
		call(session)
	}
	if len(seen) != 3 || s.Sessions() != 4 {
		t.Errorf("%d sessions of alice, %d in all", len(seen), s.Sessions())
	}
	if r := g.do(g.request(http.MethodDelete, "", first, auth)); r.status != http.StatusNoContent {
		t.Fatalf("%d %s", r.status, r.body)
	}
	awaitServer(t, s, "the end of the first", func() bool { return s.Sessions() == 3 })
	g.sessions.sweep(-time.Second)
	awaitServer(t, s, "the end of the second", func() bool { return s.Sessions() == 2 })

	ctx, cancel := context.WithCancel(t.Context())
	caller, err := g.Identify(strings.TrimPrefix(auth, "Authorization: Bearer "))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	in := strings.NewReader(initializeBody + "\n" + legacyBody("1", "tools/call", `{"name":"x_whose"}`) + "\n" + modernBody("2", "tools/call", `"name":"x_whose"`) + "\n")
	if err := g.ServeStdio(ctx, caller, in, &out); err != nil {
		t.Fatal(err)
	}
	cancel()
	if n := strings.Count(out.String(), `"sub":"alice"`); n < 2 || s.Count("initialize") != 5 {
		t.Errorf("%d sessions were opened: %s", s.Count("initialize"), out.String())
	}
	awaitServer(t, s, "the end of the host's", func() bool { return s.Sessions() == 2 })
}

// TestSessionIdleReloads: the time that sessions of clients live is that of the configuration in force.
func TestSessionIdleReloads(t *testing.T) {
	s := &mcptest.Server{Era: mcptest.Legacy, NoGET: true, Tools: mcptest.Builtin("echo")}
	shared := &mcptest.Server{Era: mcptest.Legacy, NoGET: true, Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"session":"client"`), "y": entry(shared.StartHTTP(t))}), Options{})
	next := *g.config()
	next.SessionIdle = time.Nanosecond // the sweep comes at once, and at every call
	if err := g.Apply(&next); err != nil {
		t.Fatal(err)
	}
	awaitServer(t, s, "the new configuration", func() bool { return s.Count("initialize") == 2 && s.Count("DELETE") == 1 })
	g.settle()
	if got := g.callModern("1", "x_echo", "{}"); !strings.Contains(got.body, `"content"`) {
		t.Errorf("%s", got.body)
	}
	awaitServer(t, s, "the end of the caller's session", func() bool { return s.Count("initialize") == 3 && s.Count("DELETE") == 2 })
	if shared.Count("initialize") != 1 {
		t.Error("an upstream whose session is shared was connected anew")
	}
}

// TestCredentialsStayInside plants a mark in every kind of credential and in what servers say when they
// refuse them, and looks for it wherever Headgate says something.
func TestCredentialsStayInside(t *testing.T) {
	const mark = "pl4nted-s3cret"
	as := issuer(mark + "-client")
	as.OnToken = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.PostForm.Get("audience"), "refused") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":"%s","error_description":"%[1]s %s %s"}`, mark, r.PostForm.Get("subject_token"), r.Header.Get("Authorization"))
			return true
		}
		if strings.Contains(r.PostForm.Get("audience"), "opaque") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"opaque-%s-%s","token_type":"Bearer","expires_in":3600}`, mark, r.PostForm.Get("grant_type")[:5])
			return true
		}
		return false
	}
	as.Start(t)
	// It repeats what it was shown in every way that a server can.
	echo := func(c *mcptest.Call) {
		c.Raw(http.StatusInternalServerError, "text/html", c.Header.Get("Authorization"))
	}
	echoing := func(era string) *mcptest.Server {
		return &mcptest.Server{Era: era, NoGET: true, Tools: []mcptest.Tool{
			{Def: `{"name":"odd","inputSchema":{"type":"object"}}`, Call: echo},
			{Def: `{"name":"no","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
				c.Raw(http.StatusUnauthorized, "text/html", c.Header.Get("Authorization"))
			}},
			{Def: `{"name":"lost","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
				c.Raw(http.StatusBadRequest, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"`+c.Header.Get("Authorization")+`"}}`)
			}},
		}}
	}
	grant := func(kind, audience string) string {
		return fmt.Sprintf(`"oauth":{"grant":%q,"token_url":%q,"client_id":"gw","client_secret":"%s-client","audience":%q}`, kind, as.URL+"/token?key="+mark, mark, audience)
	}
	var entries []string
	for id, more := range map[string]string{
		"own": grant("client_credentials", "api"), "each": grant("token_exchange", "api"),
		"opaque": grant("client_credentials", "opaque"), "opaque-each": grant("token_exchange", "opaque"),
		"bad": grant("client_credentials", "refused"), "wrong": strings.Replace(grant("client_credentials", "api"), mark+"-client", mark+"-wrong", 1),
		"same": `"trust":"same-audience","forward_headers":["authorization"]`,
		"none": strings.Replace(grant("client_credentials", "api"), as.URL+"/token", "http://127.0.0.1:1/token", 1),
	} {
		for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
			entries = append(entries, fmt.Sprintf(`"%s-%s":%s`, id, era, entry(echoing(era).StartHTTP(t), more)))
		}
	}
	logs := new(logBuffer)
	g := launchFor(t, as, Options{Logger: slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))}, `{`+strings.Join(entries, ",")+`}`)
	token := as.Sign(map[string]any{"sub": "alice", "aud": ownAudience, "note": mark})
	auth := "Authorization: Bearer " + token
	var said bytes.Buffer
	session := g.openBy(auth)
	caller, err := g.Identify(token)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := g.Tools(caller, "")
	if len(list) != 2*5*3 {
		t.Errorf("%d tools", len(list))
	}
	for _, tool := range list {
		fmt.Fprintln(&said, g.callBy(auth, session, tool.Name), g.callBy(auth, "", tool.Name))
	}
	fmt.Fprintln(&said, g.callBy("Authorization: Bearer "+apiKey, "", "each-modern_odd"))
	status, err := json.Marshal(g.Status())
	if err != nil {
		t.Fatal(err)
	}
	cfg := g.config()
	g.stop()
	printed, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	caller.Claims = nil // which say what the token says
	var calling bytes.Buffer
	slog.New(slog.NewJSONHandler(&calling, nil)).Info("x", "caller", caller, "token", caller.Token())
	tokens := []string{mark, apiKey, token, as.Sign(nil)[:20]} // the last is the beginning of every token of the server
	for what, text := range map[string]string{"answers": said.String(), "log": logs.String(), "status": string(status),
		"configuration": string(printed) + fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg.Upstreams),
		"caller":        calling.String() + fmt.Sprintf("%v %+v %#v %s %x", caller, caller, caller, caller.Token(), caller.Token())} {
		for _, secret := range tokens {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s: …%s…", what, text[max(0, i-300):min(len(text), i+len(secret)+20)])
			}
		}
	}
	for _, word := range []string{"***", "invalid_client", "HTTP 400"} {
		if !strings.Contains(logs.String(), word) {
			t.Errorf("the log says nothing of %s", word)
		}
	}
}
