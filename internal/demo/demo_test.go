package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixedNow is the 14th in UTC and the 15th where it was read.
func fixedNow() time.Time {
	return time.Date(2026, 3, 15, 1, 30, 0, 0, time.FixedZone("", 3*60*60))
}

// eras are the two ways to speak to a server.
var eras = []string{"modern", "legacy"}

const metaFields = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`

// client speaks raw lines to a server in one era.
type client struct {
	t    *testing.T
	era  string
	in   io.WriteCloser
	out  *bufio.Reader
	done <-chan error
	ids  int
}

// open starts a server and says nothing yet.
func open(t *testing.T, ctx context.Context, id, era string) *client {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	for _, s := range Servers(fixedNow) {
		if s.ID == id {
			go func() { done <- s.Serve(ctx, inR, outW) }()
		}
	}
	return &client{t: t, era: era, in: inW, out: bufio.NewReader(outR), done: done}
}

// serve is open with the handshake that the era asks for.
func serve(t *testing.T, ctx context.Context, id, era string) *client {
	t.Helper()
	c := open(t, ctx, id, era)
	if era == "legacy" {
		c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		c.next()
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return c
}

// close ends the input and checks that Serve ends well.
func (c *client) close() {
	c.t.Helper()
	_ = c.in.Close()
	// What is left is the end of calls that were cut off.
	_, _ = io.Copy(io.Discard, c.out)
	if err := <-c.done; err != nil {
		c.t.Errorf("Serve: %v", err)
	}
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatalf("sending %s: %v", line, err)
	}
}

func (c *client) next() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("reading: %v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

// request sends a request; params are the members of its params, meta those of
// _meta.
func (c *client) request(method, params, meta string) {
	c.t.Helper()
	c.ids++
	var metas []string
	for _, m := range []string{meta, map[string]string{"modern": metaFields}[c.era]} {
		if m != "" {
			metas = append(metas, m)
		}
	}
	members := `"_meta":{` + strings.Join(metas, ",") + `}`
	if params != "" {
		members = params + "," + members
	}
	c.send(`{"jsonrpc":"2.0","id":` + strconv.Itoa(c.ids) + `,"method":"` + method + `","params":{` + members + `}}`)
}

// result is what the tests look at in an answer.
type result struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent"`
	IsError           bool            `json:"isError"`
	ResultType        string          `json:"resultType"`
}

// call calls a tool; arguments is raw, or empty to leave them out. A protocol
// error fails the test.
func (c *client) call(tool, arguments string) result {
	c.t.Helper()
	params := `"name":"` + tool + `"`
	if arguments != "" {
		params += `,"arguments":` + arguments
	}
	c.request("tools/call", params, "")
	var msg struct {
		Result *result         `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	line := c.next()
	if err := json.Unmarshal([]byte(line), &msg); err != nil || msg.Result == nil {
		c.t.Fatalf("%s %s: no result in %s", tool, arguments, line)
	}
	if len(msg.Result.Content) != 1 || msg.Result.Content[0].Type != "text" {
		c.t.Fatalf("%s %s: content is not one text: %s", tool, arguments, line)
	}
	if want := map[string]string{"modern": "complete"}[c.era]; msg.Result.ResultType != want {
		c.t.Errorf("%s: resultType is %q, want %q", tool, msg.Result.ResultType, want)
	}
	return *msg.Result
}

func TestDiscoverAndInitialize(t *testing.T) {
	requests := map[string]string{
		"modern": `{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{` + metaFields + `}}}`,
		"legacy": `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
	}
	wants := map[string][]string{
		"modern": {`"2026-07-28"`, `"ttlMs":3600000`, `"cacheScope":"public"`, `"resultType":"complete"`},
		"legacy": {`"protocolVersion":"2025-06-18"`},
	}
	for _, s := range Servers(fixedNow) {
		for _, era := range eras {
			t.Run(era+" "+s.ID, func(t *testing.T) {
				c := open(t, t.Context(), s.ID, era)
				defer c.close()
				c.send(requests[era])
				got := c.next()
				for _, want := range append(wants[era], `"capabilities":{"tools":{}}`, `"name":"`+s.ID+`"`, `"instructions":"`) {
					if !strings.Contains(got, want) {
						t.Errorf("lacks %s: %s", want, got)
					}
				}
			})
		}
	}
}

func TestDefinitions(t *testing.T) {
	type hints struct {
		ReadOnly    *bool `json:"readOnlyHint"`
		Destructive *bool `json:"destructiveHint"`
		Idempotent  *bool `json:"idempotentHint"`
		OpenWorld   *bool `json:"openWorldHint"`
	}
	want := map[string]map[string][2]bool{ // read-only, idempotent
		"flights": {"book_flight": {false, true}, "get_weather_data": {true, true}},
		"ledger": {"list_ledgers": {true, true}, "fetch_invoice": {true, true},
			"create_shipment": {false, false}, "slow_report": {true, true}},
	}
	for _, era := range eras {
		for id, tools := range want {
			t.Run(era+" "+id, func(t *testing.T) {
				c := serve(t, t.Context(), id, era)
				defer c.close()
				c.request("tools/list", "", "")
				var msg struct {
					Result struct {
						Tools []struct {
							Name, Title, Description string
							Annotations              hints
							InputSchema              struct {
								Type                 string
								AdditionalProperties *bool
							}
							OutputSchema struct{ Type string }
						}
					}
				}
				line := c.next()
				if err := json.Unmarshal([]byte(line), &msg); err != nil {
					t.Fatal(err)
				}
				if len(msg.Result.Tools) != len(tools) {
					t.Errorf("lists %d tools, want %d: %s", len(msg.Result.Tools), len(tools), line)
				}
				for _, tool := range msg.Result.Tools {
					w, ok := tools[tool.Name]
					a := tool.Annotations
					if a.ReadOnly == nil || a.Destructive == nil || a.Idempotent == nil || a.OpenWorld == nil {
						t.Fatalf("%s: an annotation is missing", tool.Name)
					}
					if !ok || *a.ReadOnly != w[0] || *a.Idempotent != w[1] || *a.Destructive || *a.OpenWorld {
						t.Errorf("%s: annotations %v %v %v %v", tool.Name, *a.ReadOnly, *a.Idempotent, *a.Destructive, *a.OpenWorld)
					}
					if tool.Title == "" || tool.Description == "" || tool.InputSchema.Type != "object" || tool.OutputSchema.Type != "object" ||
						tool.InputSchema.AdditionalProperties == nil || *tool.InputSchema.AdditionalProperties {
						t.Errorf("%s: incomplete definition %+v", tool.Name, tool)
					}
				}
			})
		}
	}
}

func TestAnswers(t *testing.T) {
	tests := []struct{ name, server, tool, arguments, want string }{
		{"weather", "flights", "get_weather_data", `{"location":"Oslo"}`, `{"location":"Oslo","temperature":28.6,"conditions":"clear","humidity":45}`},
		{"weather, other spelling", "flights", "get_weather_data", `{"location":" oslo "}`, `{"location":"oslo","temperature":28.6,"conditions":"clear","humidity":45}`},
		{"weather, other place", "flights", "get_weather_data", `{"location":"Lisbon <&>"}`, ``},
		{"first day", "flights", "book_flight", `{"to":"Oslo","date":"2026-03-15"}`, ``},
		{"last day", "flights", "book_flight", `{"to":"Oslo","date":"2027-02-07"}`, ``},
		{"ledgers", "ledger", "list_ledgers", ``, `{"ledgers":[` +
			`{"ledger":"main","primary":true,"covers":"invoices INV-2000 and up, issued since 2026","invoices":3},` +
			`{"ledger":"archive","primary":false,"covers":"invoices INV-1000 to INV-1999, issued before 2026","invoices":2}]}`},
		{"ledgers, null arguments", "ledger", "list_ledgers", `null`, ``},
		{"invoice", "ledger", "fetch_invoice", `{"invoice_id":"inv-2002"}`,
			`{"invoice_id":"INV-2002","ledger":"main","customer":"Millrace Foods","issued":"2026-02-03","amount":412.5,"currency":"EUR","status":"open"}`},
		{"invoice, null ledger", "ledger", "fetch_invoice", `{"invoice_id":"INV-2002","ledger":null}`, ``},
		{"invoice in the other ledger", "ledger", "fetch_invoice", `{"invoice_id":"INV-1001","ledger":"archive"}`,
			`{"invoice_id":"INV-1001","ledger":"archive","customer":"Weir \u0026 Sluice Ltd","issued":"2023-05-09","amount":1200,"currency":"EUR","status":"paid"}`},
		{"shipment", "ledger", "create_shipment", `{"destination":"Bergen","weight_kg":2.5}`,
			`{"shipment_id":"SHP-000001","destination":"Bergen","weight_kg":2.5,"status":"created"}`},
	}
	for _, era := range eras {
		for _, tt := range tests {
			t.Run(era+" "+tt.name, func(t *testing.T) {
				c := serve(t, t.Context(), tt.server, era)
				defer c.close()
				r := c.call(tt.tool, tt.arguments)
				if r.IsError {
					t.Fatalf("refused: %s", r.Content[0].Text)
				}
				if got := string(r.StructuredContent); got != r.Content[0].Text || tt.want != "" && got != tt.want {
					t.Errorf("structured content is\n%s\ntext is\n%s\nwant\n%s", got, r.Content[0].Text, tt.want)
				}
			})
		}
	}
}

func TestRepeatedCalls(t *testing.T) {
	tests := []struct {
		server, tool, arguments string
		same                    bool
	}{
		{"flights", "book_flight", `{"to":"Oslo","date":"2026-04-01"}`, true},
		{"flights", "get_weather_data", `{"location":"Rome"}`, true},
		{"ledger", "create_shipment", `{"destination":"Bergen","weight_kg":1}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			c := serve(t, t.Context(), tt.server, "modern")
			defer c.close()
			first, second := c.call(tt.tool, tt.arguments), c.call(tt.tool, tt.arguments)
			if got := string(first.StructuredContent) == string(second.StructuredContent); got != tt.same {
				t.Errorf("same answer twice: %v, want %v: %s", got, tt.same, second.StructuredContent)
			}
		})
	}
}
