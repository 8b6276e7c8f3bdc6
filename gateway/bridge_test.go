package gateway

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// asking is a legacy server's tool that asks what its arguments say and answers with what it was told.
// The arguments are {"ask":[{"method":…,"params":…},…]}; with "together" all are asked at a time.
func asking() mcptest.Tool {
	return mcptest.Tool{Def: `{"name":"asking","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		questions := rawArray(string(memberOf(string(c.Member("arguments")), "ask")))
		told := make([]string, len(questions))
		ask := func(i int) {
			result, fault := c.Ask(strings.Trim(string(memberOf(questions[i], "method")), `"`), string(memberOf(questions[i], "params")))
			if told[i] = string(result); result == nil {
				told[i] = string(fault)
			}
		}
		if memberOf(string(c.Member("arguments")), "together") != nil {
			done := make(chan struct{})
			for i := range questions {
				go func() { ask(i); done <- struct{}{} }()
			}
			for range questions {
				<-done
			}
		} else {
			for i := range questions {
				ask(i)
			}
		}
		if c.Ctx.Err() == nil {
			c.Structured(`{"told":[` + strings.Join(told, ",") + `]}`)
		}
	}}
}

func memberOf(text, name string) []byte {
	obj, err := wire.ParseObject([]byte(text))
	if err != nil {
		return nil
	}
	v, _ := obj.Get(name)
	return v
}

// rawArray splits a JSON array.
func rawArray(text string) (out []string) {
	blocks, _ := wire.Array([]byte(text))
	for _, b := range blocks {
		out = append(out, string(b))
	}
	return out
}

const (
	askName    = `{"method":"elicitation/create","params":{"message":"Name?","requestedSchema":{"type":"object","properties":{"n":{"type":"string"}}}}}`
	askModel   = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":9007199254740993}}`
	askRoots   = `{"method":"roots/list"}`
	askedRoots = `{"method":"roots/list","params":{}}` // as it is brought to a modern client

	allAbilities = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}`
)

// capableBody is a modern request of a client with capabilities.
func capableBody(id, method, params, caps string, meta ...string) string {
	body := modernBody(id, method, params, meta...)
	return strings.Replace(body, `"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/clientCapabilities":`+caps, 1)
}

// retry are the members of params by which a client answers an input_required.
func retry(responses, state string) string {
	return `,"inputResponses":` + responses + `,"requestState":` + state
}

// mustDemand checks that an answer demands input, and returns the demands and the state.
func mustDemand(t *testing.T, message string) (inputs, state string) {
	t.Helper()
	if got := at(t, message, "result", "resultType"); got != `"input_required"` {
		t.Fatalf("not input_required: %s", message)
	}
	return at(t, message, "result", "inputRequests"), at(t, message, "result", "requestState")
}

// legacyKinds are the legacy servers whose questions can be told apart.
func legacyKinds(t *testing.T, s *mcptest.Server) map[string]func() (entryJSON string, o Options) {
	return map[string]func() (string, Options){
		"http": func() (string, Options) { return entry(s.StartHTTP(t)), Options{} },
		"sse":  func() (string, Options) { return entry(s.StartSSE(t), `"type":"sse"`, `"session":"client"`), Options{} },
		"stdio": func() (string, Options) {
			return `{"command":"embedded","session":"client"}`, Options{Embedded: embed("x", s)}
		},
	}
}

// modernSender sends a modern request over some transport and returns the answer.
func modernSenders(g *gate) map[string]func(id, params, caps string, meta ...string) string {
	p := g.pipe()
	return map[string]func(id, params, caps string, meta ...string) string{
		"http": func(id, params, caps string, meta ...string) string {
			name := at(g.t, `{`+params+`}`, "name")
			return g.post(capableBody(id, "tools/call", params, caps, meta...),
				modernHeaders("tools/call", "Mcp-Name: "+strings.Trim(name, `"`))...).message()
		},
		"stdio": func(id, params, caps string, meta ...string) string {
			return p.call(id, capableBody(id, "tools/call", params, caps, meta...))
		},
	}
}

// TestLegacyServerAsksModernClient has legacy servers ask modern clients over every transport: in several rounds, and
// several questions at a time.
func TestLegacyServerAsksModernClient(t *testing.T) {
	for _, kind := range []string{"http", "sse", "stdio"} {
		t.Run(kind, func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{asking()}}
			conf, o := legacyKinds(t, s)[kind]()
			g := launch(t, parseConfig(t, map[string]string{"x": conf}), o)
			for client, send := range modernSenders(g) {
				t.Run(client, func(t *testing.T) {
					args := `"name":"x_asking","arguments":{"ask":[` + askName + `,` + askModel + `,` + askRoots + `]}`
					inputs, state := mustDemand(t, send("1", args, allAbilities))
					if inputs != `{"q1":`+askName+`}` {
						t.Errorf("first round: %s", inputs)
					}
					inputs, state = mustDemand(t, send("2", args+retry(`{"q1":{"action":"accept","content":{"n":"Ä"}},"other":{}}`, state), allAbilities))
					if inputs != `{"q2":`+askModel+`}` {
						t.Errorf("second round: %s", inputs)
					}
					inputs, state = mustDemand(t, send("3", args+retry(`{"q2":{"role":"assistant","x":1.0}}`, state), allAbilities))
					if inputs != `{"q3":`+askedRoots+`}` {
						t.Errorf("third round: %s", inputs)
					}
					got := send("4", args+retry(`{"q3":{"roots":[]}}`, state), allAbilities)
					want := `{"told":[{"action":"accept","content":{"n":"Ä"}},{"role":"assistant","x":1.0},{"roots":[]}]}`
					if told := at(t, got, "result", "structuredContent"); told != want {
						t.Errorf("answer: %s", got)
					}
					if at(t, got, "id") != "4" || at(t, got, "result", "resultType") != `"complete"` {
						t.Errorf("answer: %s", got)
					}

					args = `"name":"x_asking","arguments":{"together":1,"ask":[` + askName + `,` + askRoots + `]}`
					inputs, state = mustDemand(t, send("5", args, allAbilities))
					obj := object(t, inputs)
					if len(obj) != 2 {
						t.Fatalf("both at a time: %s", inputs)
					}
					// Half an answer brings the other half's question again.
					inputs, state = mustDemand(t, send("6", args+retry(`{"`+obj[0].Name+`":{"roots":[],"action":"decline"}}`, state), allAbilities))
					if again := object(t, inputs); len(again) != 1 || again[0].Name != obj[1].Name {
						t.Errorf("what is missing: %s", inputs)
					}
					got = send("7", args+retry(`{"`+obj[1].Name+`":{"roots":[],"action":"decline"}}`, state), allAbilities)
					if at(t, got, "result", "structuredContent") == "" {
						t.Errorf("answer: %s", got)
					}
				})
			}
			if n := s.Executions("asking"); n != 4 {
				t.Errorf("%d executions", n)
			}
		})
	}
}
