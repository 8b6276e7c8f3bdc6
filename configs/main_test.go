package configs

import (
	"errors"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustParse(t *testing.T, name, text string, o Options) *Config {
	t.Helper()
	cfg, err := Parse(name, []byte(text), o)
	if err != nil {
		t.Fatalf("parsing %s: %v", name, err)
	}
	return cfg
}

// parseErrors gives the problems of a configuration that must not be accepted.
func parseErrors(t *testing.T, name, text string, o Options) *Errors {
	t.Helper()
	cfg, err := Parse(name, []byte(text), o)
	if err == nil {
		t.Fatalf("%s was accepted: %v", name, cfg)
	}
	var all *Errors
	if !errors.As(err, &all) || cfg != nil {
		t.Fatalf("error is a %T with configuration %v", err, cfg)
	}
	return all
}
