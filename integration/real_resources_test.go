//go:build integration

package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// clock is how the everything server writes the time into what it makes up.
var clock = regexp.MustCompile(`\d{1,2}:\d\d:\d\d( [AP]M)?`)

// blobText is a blob of the everything server, which holds the time too.
var blobText = regexp.MustCompile(`"blob":"([A-Za-z0-9+/=]+)"`)

// timeless is an answer without the time of day, and without the hints that only modern clients get.
func timeless(r reply) string {
	return withoutTime(strings.Replace(r.String(), `"ttlMs":0,"cacheScope":"private",`, "", 1))
}

// withoutTime is JSON text of the everything server without the time of day.
func withoutTime(s string) string {
	s = blobText.ReplaceAllStringFunc(s, func(m string) string {
		b, err := base64.StdEncoding.DecodeString(blobText.FindStringSubmatch(m)[1])
		if err != nil || !strings.HasPrefix(string(b), "Resource ") {
			return m
		}
		return `"blob of":"` + string(b) + `"`
	})
	return clock.ReplaceAllString(s, "TIME")
}

// TestRealPromptsAndResources holds what comes through a Headgate in front of three everything servers, on
// three transports, against what one says when it is asked directly. All three list the same URIs.
func TestRealPromptsAndResources(t *testing.T) {
	w := newWorld(t)
	direct := overStdio(t, nil, w.servers["everything"]...)
	p := startHeadgate(t, w.config)
	modernClient := func(t *testing.T, method, params string) reply { return modernRead(t, p.endpoint, method, params) }
	through := map[string]client{
		"modern over HTTP":  modernClient,
		"legacy over HTTP":  overHTTP(t, p.endpoint),
		"legacy over stdio": overStdio(t, nil, binary, "stdio", "--config", w.config),
	}
	awaitTools(t, through["legacy over stdio"], withAsking(toolNames(t, modern(p.endpoint))))

	keys := func(list json.RawMessage, member, key string) (out []string, definitions map[string]string) {
		var result map[string]json.RawMessage
		var defs []json.RawMessage
		if err := json.Unmarshal(list, &result); err != nil {
			t.Fatalf("%v: %s", err, list)
		}
		if err := json.Unmarshal(result[member], &defs); err != nil {
			t.Fatalf("%v: %s", err, list)
		}
		definitions = map[string]string{}
		for _, d := range defs {
			var members map[string]any
			if err := json.Unmarshal(d, &members); err != nil {
				t.Fatal(err)
			}
			k, _ := members[key].(string)
			out = append(out, k)
			definitions[k] = string(d)
		}
		return out, definitions
	}
	servers := []string{"everything", "old", "web"} // in order: the first one has the plain URIs
	ownURIs, _ := keys(direct(t, "resources/list", "{}").Result, "resources", "uri")
	ownTemplates, _ := keys(direct(t, "resources/templates/list", "{}").Result, "resourceTemplates", "uriTemplate")
	ownPrompts, promptDefs := keys(direct(t, "prompts/list", "{}").Result, "prompts", "name")
	if len(ownURIs) < 5 || len(ownTemplates) < 2 || len(ownPrompts) < 4 {
		t.Fatalf("the server has %q, %q, %q", ownURIs, ownTemplates, ownPrompts)
	}
	exposed := func(server, uri string) string {
		if server == servers[0] {
			return uri
		}
		return "headgate://" + server + "/" + uri
	}
	var wantURIs, wantTemplates, wantPrompts []string
	for _, s := range servers {
		for _, uri := range ownURIs {
			wantURIs = append(wantURIs, exposed(s, uri))
		}
		for _, text := range ownTemplates {
			wantTemplates = append(wantTemplates, exposed(s, text))
		}
		for _, name := range ownPrompts {
			wantPrompts = append(wantPrompts, s+"_"+name)
		}
	}
	for _, list := range [][]string{wantURIs, wantTemplates, wantPrompts} {
		slices.Sort(list)
	}

	for kind, c := range through {
		t.Run(kind, func(t *testing.T) {
			uris, _ := keys(c(t, "resources/list", "{}").Result, "resources", "uri")
			uris = slices.DeleteFunc(uris, func(uri string) bool { return !strings.Contains(uri, "demo://") }) // other servers have some too
			if !slices.Equal(uris, wantURIs) {
				t.Errorf("resources: %q", uris)
			}
			if got, _ := keys(c(t, "resources/templates/list", "{}").Result, "resourceTemplates", "uriTemplate"); !slices.Equal(got, wantTemplates) {
				t.Errorf("templates: %q", got)
			}
			got, definitions := keys(c(t, "prompts/list", "{}").Result, "prompts", "name")
			if !slices.Equal(got, wantPrompts) {
				t.Errorf("prompts: %q", got)
			}
			for _, s := range servers {
				same := func(what, method, own, through string) {
					t.Helper()
					if want, got := timeless(direct(t, method, own)), timeless(c(t, method, through)); got != want {
						t.Errorf("%s of %s:\n got %s\nwant %s", what, s, got, want)
					}
				}
				for _, name := range ownPrompts {
					was, is := fmt.Sprintf(`"name":%q`, name), fmt.Sprintf(`"name":%q`, s+"_"+name)
					if want := strings.Replace(promptDefs[name], was, is, 1); definitions[s+"_"+name] != want {
						t.Errorf("%s: %s, want %s", name, definitions[s+"_"+name], want)
					}
				}
				for _, uri := range append(slices.Clone(ownURIs), "demo://resource/dynamic/text/7", "demo://resource/dynamic/blob/8") {
					same(uri, "resources/read", fmt.Sprintf(`{"uri":%q}`, uri), fmt.Sprintf(`{"uri":%q}`, exposed(s, uri)))
				}
				for name, arguments := range map[string]string{"simple-prompt": `{}`, "args-prompt": `{"city":"Łódź","state":"PL"}`, "completable-prompt": `{"department":"Sales","name":"Eve"}`,
					"resource-prompt": `{"resourceType":"Text","resourceId":"3"}`} {
					same(name, "prompts/get", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments), fmt.Sprintf(`{"name":%q,"arguments":%s}`, s+"_"+name, arguments))
				}
				same("a bad prompt", "prompts/get", `{"name":"args-prompt","arguments":{}}`, fmt.Sprintf(`{"name":%q,"arguments":{}}`, s+"_args-prompt"))
				complete := `{"ref":{"type":"ref/prompt","name":%q},"argument":{"name":"name","value":"E"},"context":{"arguments":{"department":"Sales"}}}`
				same("a completion", "completion/complete", fmt.Sprintf(complete, "completable-prompt"), fmt.Sprintf(complete, s+"_completable-prompt"))
				complete = `{"ref":{"type":"ref/resource","uri":%q},"argument":{"name":"resourceId","value":"1"}}`
				same("a completion of a template", "completion/complete", fmt.Sprintf(complete, ownTemplates[0]), fmt.Sprintf(complete, exposed(s, ownTemplates[0])))
			}
			code := "-32002"
			if kind == "modern over HTTP" {
				code = "-32602"
			}
			for _, uri := range []string{"demo://resource/nothing", "headgate://web/demo://resource/nothing"} {
				if r := c(t, "resources/read", fmt.Sprintf(`{"uri":%q}`, uri)); !strings.Contains(string(r.Error), `"code":`+code) || !strings.Contains(strings.ToLower(string(r.Error)), "not found") {
					t.Errorf("%s: %s", uri, r)
				}
			}
		})
	}
	for _, s := range servers {
		for _, version := range []string{"2026-07-28", "2025-11-25"} {
			t.Run("updates of "+s+" to "+version, func(t *testing.T) { realUpdates(t, p.endpoint, version, s, exposed(s, ownURIs[0])) })
		}
	}
	p.stop(t)
}

// modernRead is modern for methods that Mcp-Name names otherwise.
func modernRead(t *testing.T, endpoint, method, params string) reply {
	t.Helper()
	if method != "resources/read" && method != "prompts/get" {
		return modern(endpoint)(t, method, params)
	}
	var p struct{ Name, URI string }
	if err := json.Unmarshal([]byte(params), &p); err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}, "Mcp-Name": {p.Name + p.URI}}
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`
	r, _ := post(t, endpoint, header, fmt.Sprintf(`{"jsonrpc":"2.0","id":"m","method":%q,"params":%s,%s}`, method, strings.TrimSuffix(params, "}"), meta))
	for _, form := range []string{`"resultType":"complete",`, `,"resultType":"complete"`} {
		r.Result = json.RawMessage(strings.Replace(string(r.Result), form, "", 1))
	}
	if len(r.Result) == 0 {
		r.Result = nil
	}
	return r
}

// realUpdates subscribes to a resource of a server that makes up updates of whatever is subscribed to.
func realUpdates(t *testing.T, endpoint, version, server, uri string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	updated := make(chan string, 64)
	c := mcp.NewClient(&mcp.Implementation{Name: "integration", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI }})
	s, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: endpoint}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	toggle := func() {
		if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: server + "_toggle-subscriber-updates", Arguments: map[string]any{}}); err != nil {
			t.Fatal(err)
		}
	}
	toggle()
	defer toggle()
	select {
	case got := <-updated:
		if got != uri {
			t.Errorf("heard of %s, want %s", got, uri)
		}
	case <-ctx.Done():
		t.Error("no update came")
	}
}
