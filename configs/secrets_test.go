package configs

import (
	"slices"
	"testing"
)

func TestSecrets(t *testing.T) {
	const doc = `
upstreams:
  web: {url: "https://u:pa55word@mcp.example.com:8443/mcp?key=q-value", headers: {Authorization: "Bearer  tok-1", X-Key: raw}}
  child:
    command: server
    args: [--stdio, "--api-key=k-1", --token, t-2, --name, plain, "${env:ARG}", "--db=${env:ARG}", "--token=", -v]
    env: {A: "one\n two\n", B: ""}
`
	cfg := mustParse(t, "c.yaml", doc, Options{Environ: []string{"ARG=from-env"}})
	for id, want := range map[string][]string{
		"web":   {"Bearer  tok-1", "pa55word", "q-value", "raw", "tok-1"},
		"child": {"--db=from-env", "from-env", "from-env", "k-1", "one", "one\n two\n", "t-2", "two"},
	} {
		got := cfg.Upstreams[id].Secrets()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	if web, child := cfg.Upstreams["web"].Hostname(), cfg.Upstreams["child"].Hostname(); web != "mcp.example.com" || child != "" {
		t.Errorf("hosts %q and %q", web, child)
	}
}
