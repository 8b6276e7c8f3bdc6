package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/gateway"
)

// TestCredentialsPage loads every configuration of the page as serve would.
func TestCredentialsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/credentials.md")
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded := 0
	for _, m := range fence.FindAllStringSubmatch(string(page), -1) {
		if m[1] != "yaml" {
			continue
		}
		loaded++
		text := strings.ReplaceAll(m[2], "/etc/headgate/intranet-secret", secret)
		cfg, err := configs.Parse("page.yaml", []byte(text), configs.Options{CheckRules: authz.CheckRules,
			Environ: []string{"GITHUB_TOKEN=x", "LEDGER_SECRET=x", "PAYMENTS_SECRET=x", "REPORTS_TOKEN=x"}})
		if err != nil {
			t.Errorf("%s\n%v", text, err)
			continue
		}
		if len(cfg.Warnings) > 0 {
			t.Errorf("%s\n%q", text, cfg.Warnings)
		}
		if _, err := gateway.New(cfg, gateway.Options{}); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
		if id := "payments"; cfg.Upstreams[id] != nil && cfg.Upstreams[id].Session != configs.SessionCaller {
			t.Errorf("the session of %s is %s", id, cfg.Upstreams[id].Session)
		}
	}
	if loaded != 6 {
		t.Errorf("%d configurations on the page", loaded)
	}
}
