package gateway

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// TestSecretsShowNowhere plants secrets in everything that a request and an answer have, has calls end in every way,
// and looks for them in every signal.
func TestSecretsShowNowhere(t *testing.T) {
	answers := failing()
	answers["fine"] = func(c *mcptest.Call) { c.Text(plantedResult) }
	answers["iserror"] = func(c *mcptest.Call) { c.ToolError(plantedResult) }
	answers["rpc"] = func(c *mcptest.Call) {
		c.Error(`{"code":-32000,"message":"` + plantedResult + `","data":"` + plantedResult + `"}`)
	}
	answers["twice"] = func(c *mcptest.Call) {
		c.Result(`{"` + plantedResult + `":1,"` + plantedResult + `":2,"isError":true}`)
	}
	answers["text"] = func(c *mcptest.Call) { c.Raw(401, "text/plain", plantedResult) }
	answers["envelope"] = func(c *mcptest.Call) { c.Raw(200, "application/json", `{"`+plantedResult+`":1,"`+plantedResult+`":1}`) }
	answers["redirect"] = func(c *mcptest.Call) {
		conn := c.Hijack()
		fmt.Fprintf(conn, "HTTP/1.1 302 x\r\nLocation: http://%s/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", plantedResult)
		_ = conn.Close()
	}
	entries := map[string]string{}
	for id, call := range answers {
		s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"plain","inputSchema":{"type":"object"}}`, Call: call}}}
		h := s.StartHTTP(t)
		h.URL += "?key=" + plantedQuery
		entries[id] = entry(h, timeFor(id), `"headers":{"Authorization":"Bearer `+plantedHeader+`","X-Other":"`+plantedHeader+`"}`)
	}
	gone := (&mcptest.Server{Tools: mcptest.Builtin("plain")}).StartHTTP(t)
	url := gone.URL
	gone.URL = strings.Replace(url, "http://", "http://user:"+plantedPassword+"@", 1) + "?key=" + plantedQuery
	entries["gone"] = entry(gone)
	g := launchObserved(t, parseConfig(t, entries), "http/protobuf", Options{})
	gone.Stop()
	session := g.open()
	n := 0
	for id := range entries {
		n++
		header := []string{"Authorization: Bearer " + plantedHeader, "Cookie: a=" + plantedHeader, "X-Api-Key: " + plantedHeader}
		g.traced("", "1", id+"_plain", metaParent(parentOf(fmt.Sprint(1000+n)))+`,"x/`+plantedArgument+`":"`+plantedArgument+`"`, header...)
		g.post(legacyBody("2", "tools/call", `{"name":"`+id+`_plain","arguments":{"`+plantedArgument+`":"`+plantedArgument+`"}}`), append(header, session)...)
		g.spans(traceOf(fmt.Sprint(1000 + n)))
	}
	// What is no tool, no method and no message.
	for _, body := range []string{
		legacyBody("3", "tools/call", `{"name":"`+plantedArgument+`"}`),
		legacyBody("4", plantedArgument, ""),
		legacyBody("5", "resources/read", `{"uri":"file:///`+plantedArgument+`"}`),
		legacyBody("6", "tools/call", `{"name":"fine_plain","`+plantedArgument+`":1,"`+plantedArgument+`":2}`),
		`{"jsonrpc":"2.0","id":7,"method":"` + plantedArgument,
	} {
		g.post(body, session, "Traceparent: "+parentOf("77"))
	}
	g.post(modernBody("8", "resources/read", `"uri":"file:///`+plantedArgument+`"`), modernHeaders("resources/read", "Mcp-Name: "+wire.EncodeHeaderValue("file:///"+plantedArgument), "Traceparent: "+parentOf("78"))...)
	g.spans(traceOf("78"))

	spans, err := json.Marshal(g.Spans())
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	g.Admin().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for signal, text := range map[string]string{"spans": string(spans), "metrics": w.Body.String(), "log": g.log.String()} {
		if len(text) < 1000 {
			t.Errorf("there is little in the %s: %s", signal, text)
		}
		for _, secret := range []string{plantedArgument, plantedResult, plantedHeader, plantedQuery, plantedPassword} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("the %s hold %s: …%s", signal, secret, text[max(0, i-300):min(len(text), i+100)])
			}
		}
	}
}
