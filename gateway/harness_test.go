package gateway

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

func TestMain(m *testing.M) {
	if mcptest.RunChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// limit is how long a test waits for what must come.
const limit = 30 * time.Second

// parseConfig makes a configuration of upstream entries, as JSON by id, and other top-level members.
func parseConfig(t testing.TB, upstreams map[string]string, more ...string) *configs.Config {
	t.Helper()
	var entries []string
	for _, id := range slices.Sorted(maps.Keys(upstreams)) {
		entries = append(entries, `"`+id+`":`+upstreams[id])
	}
	doc := `{` + strings.Join(append(more, `"upstreams":{`+strings.Join(entries, ",")+`}`), ",") + `}`
	cfg, err := configs.Parse("test.json", []byte(doc), configs.Options{})
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return cfg
}

// entry is the configuration entry of a server on HTTP, with more members of it.
func entry(h *mcptest.HTTP, more ...string) string {
	return `{` + strings.Join(append(more, `"url":"`+h.URL+`"`), ",") + `}`
}

// embeddedEntry is the entry of a server that Options.Embedded runs.
const embeddedEntry = `{"command":"embedded"}`

// gate is a running Gateway with a front on a socket.
type gate struct {
	*Gateway
	t    testing.TB
	url  string
	http *http.Client
	log  *logBuffer
	stop func() // ends Run and waits for it
}

// logBuffer is a log that tests read.
type logBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// launch runs a gateway until the test ends, and waits for its upstreams.
func launch(t testing.TB, cfg *configs.Config, o Options) *gate {
	t.Helper()
	g := launchUnsettled(t, cfg, o)
	g.settle()
	return g
}

func launchUnsettled(t testing.TB, cfg *configs.Config, o Options) *gate {
	t.Helper()
	logs := new(logBuffer)
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(logs, nil))
	}
	if o.Upstream.MaxBackoff == 0 {
		o.Upstream.MaxBackoff = 100 * time.Millisecond
	}
	g := serve(t, makeGateway(t, cfg, o))
	g.log = logs
	return g
}

// makeGateway is New for configurations that are right.
func makeGateway(t testing.TB, cfg *configs.Config, o Options) *Gateway {
	t.Helper()
	g, err := New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// shown is what the anonymous caller sees.
func (s *snapshot) shown() *view { return s.viewFor(authz.Anonymous(), "") }

func (s *snapshot) tool(name string) *tool {
	t, _ := s.shown().find(name)
	return t.tool
}

// ownerless is a snapshot like s with one more tool, "broken", that has no owner.
func (s *snapshot) ownerless() *snapshot {
	was := s.shown().scope
	sc := &scope{naming: was.naming, byName: map[string]int{}}
	def := was.tools[0].definition
	bytes := renamed(def.Definition, "broken")
	for _, t := range append(slices.Clone(was.tools), &tool{name: "broken", definition: def, exposed: bytes, legacy: bytes}) {
		sc.byName[t.name] = len(sc.tools)
		sc.tools = append(sc.tools, t)
	}
	broken := &snapshot{cfg: s.cfg, access: s.access, naming: s.naming, views: newViews(), settled: true}
	broken.everything = &view{scope: sc}
	broken.finish(broken.everything)
	return broken
}

// disturb changes the list that everybody sees, and tells of it: the names get another separator. A
// snapshot that is rebuilt for another reason does not undo it.
func (g *gate) disturb() {
	g.t.Helper()
	cfg := *g.config()
	if cfg.Naming.Separator == "_" {
		cfg.Naming.Separator = "__"
	} else {
		cfg.Naming.Separator = "_"
	}
	if err := g.Apply(&cfg); err != nil {
		g.t.Fatal(err)
	}
}

// tools are those that the anonymous caller is shown.
func (g *gate) tools() []ToolInfo {
	list, _ := g.Tools(authz.Anonymous(), "")
	return list
}

// serve runs a gateway and puts a front before it, until the test ends.
func serve(t testing.TB, gateway *Gateway) *gate {
	g := &gate{Gateway: gateway, t: t}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Run(ctx)
	}()
	g.stop = func() {
		cancel()
		<-done
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	end := &handled{next: tr, done: make(map[string]chan struct{})}
	front := httptest.NewServer(end.handler(g.Handler()))
	g.url = front.URL + "/mcp"
	g.http = &http.Client{Transport: end}
	t.Cleanup(func() {
		g.Drain() // streams end, so that the front can
		tr.CloseIdleConnections()
		front.CloseClientConnections()
		front.Close()
		g.stop()
	})
	return g
}

func (g *gate) settle() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := g.WaitSettled(ctx); err != nil {
		g.t.Fatal(err)
	}
}

// await waits for a snapshot of which cond is true.
func (g *gate) await(what string, cond func(s *snapshot) bool) {
	g.t.Helper()
	timeout := time.After(limit)
	for {
		g.mu.Lock()
		rebuilt := g.rebuilt
		g.mu.Unlock()
		if cond(g.snapshot.Load()) {
			return
		}
		select {
		case <-rebuilt:
		case <-timeout:
			g.t.Fatalf("waiting for %s: in vain", what)
		}
	}
}

// awaitTool waits until a tool of this exposed name is listed, or is no more.
func (g *gate) awaitTool(name string, listed bool) {
	g.t.Helper()
	g.await("tool "+name, func(s *snapshot) bool { return (s.tool(name) != nil) == listed })
}

// reply is an HTTP answer, read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

// message is the last message of an answer, plain or at the end of a stream.
func (r reply) message() string {
	if !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		return r.body
	}
	all := r.events()
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

func (r reply) events() []string {
	var out []string
	events := wire.NewEventReader(strings.NewReader(r.body), 64<<20)
	for {
		e, err := events.Next()
		if err != nil {
			return out
		}
		out = append(out, string(e.Data))
	}
}

// request makes a request; a header is "Name: value", and "Name:" takes away one that is set by default.
func (g *gate) request(method, body string, header ...string) *http.Request {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	g.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, g.url, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range header {
		name, value, _ := strings.Cut(h, ":")
		if value == "" {
			req.Header.Del(name)
			continue
		}
		if value = strings.TrimPrefix(value, " "); req.Header.Get(name) != "" && (name == "Accept" || name == "Content-Type") {
			req.Header.Del(name)
		}
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	return req
}

func (g *gate) do(req *http.Request) reply {
	g.t.Helper()
	resp, err := g.http.Do(req)
	if err != nil {
		g.t.Errorf("%s: %v", req.Method, err)
		return reply{header: http.Header{}}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Errorf("%s: reading the answer: %v", req.Method, err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func (g *gate) post(body string, header ...string) reply {
	g.t.Helper()
	return g.do(g.request(http.MethodPost, body, header...))
}

// modernMeta is a _meta object with what every modern request has, and more members.
func modernMeta(more ...string) string {
	return `{` + strings.Join(append([]string{`"io.modelcontextprotocol/protocolVersion":"2026-07-28"`,
		`"io.modelcontextprotocol/clientCapabilities":{}`}, more...), ",") + `}`
}

// modernBody is a modern request; params are the members of params besides _meta.
func modernBody(id, method, params string, meta ...string) string {
	if params != "" {
		params += ","
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `"_meta":` + modernMeta(meta...) + `}}`
}

// modernHeaders are the headers of a modern request.
func modernHeaders(method string, more ...string) []string {
	return append([]string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}, more...)
}

func (g *gate) modern(id, method, params string, header ...string) reply {
	g.t.Helper()
	return g.post(modernBody(id, method, params), modernHeaders(method, header...)...)
}

// callModern calls a tool; arguments is a JSON object or "".
func (g *gate) callModern(id, tool, arguments string, meta ...string) reply {
	g.t.Helper()
	return g.post(modernBody(id, "tools/call", callParams(tool, arguments), meta...),
		modernHeaders("tools/call", "Mcp-Name: "+wire.EncodeHeaderValue(tool))...)
}

func callParams(tool, arguments string) string {
	p := `"name":` + string(wire.AppendString(nil, tool))
	if arguments != "" {
		p += `,"arguments":` + arguments
	}
	return p
}

const initializeBody = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

// open opens a session and returns its id as a header.
func (g *gate) open() (session string) {
	g.t.Helper()
	r := g.post(initializeBody)
	id := r.header.Get(sessionHeader)
	if r.status != http.StatusOK || id == "" {
		g.t.Fatalf("initialize: %d %s", r.status, r.body)
	}
	session = sessionHeader + ": " + id
	if r := g.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, session); r.status != http.StatusAccepted {
		g.t.Fatalf("initialized: %d %s", r.status, r.body)
	}
	return session
}

// legacyBody is a legacy request; params is a JSON object or "".
func legacyBody(id, method, params string) string {
	if params != "" {
		params = `,"params":` + params
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"` + params + `}`
}

func (g *gate) callLegacy(session, id, tool, arguments string) reply {
	g.t.Helper()
	return g.post(legacyBody(id, "tools/call", `{`+callParams(tool, arguments)+`}`), session, "Mcp-Protocol-Version: 2025-11-25")
}

// serveLines runs a scripted server in process.
func serveLines(s *mcptest.Server) upstream.ServeFunc {
	return func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
		return s.ServeLines(ctx, in, out)
	}
}

// object reads a JSON object or fails the test.
func object(t testing.TB, text string) wire.Object {
	t.Helper()
	obj, err := wire.ParseObject([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return obj
}

// at returns the text of the value at a path of names, or "".
func at(t testing.TB, text string, path ...string) string {
	t.Helper()
	for _, name := range path {
		v, ok := object(t, text).Get(name)
		if !ok {
			return ""
		}
		text = string(v)
	}
	return text
}

// awaitServer waits for a condition on a scripted server.
func awaitServer(t testing.TB, s *mcptest.Server, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.Await(ctx, cond); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
