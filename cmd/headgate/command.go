package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/demo"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/upstream"
)

// env is what the program sees of the world.
type env struct {
	oneClient      bool // what the command serves
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer

	config    string          // --config
	serves    bool            // the command answers requests, and tells of them by traces and metrics
	previous  *configs.Config // in force, at a reload
	override  map[string]any  // flags that stand for configuration keys
	levels    telemetry.Levels
	telErrors *telemetry.Errors
	tel       *telemetry.Telemetry // of a command that does; nil for others
}

func newCommand(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "One MCP endpoint in front of many MCP servers",
		Long: `Headgate is one MCP endpoint in front of many MCP servers. It merges their tools under
prefixed names, sends each call to the server that owns the tool, and hands back
exactly what that server said.

Without --config it serves two embedded demo servers, "flights" and "ledger".`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddCommand(newServe(e), newStdio(e), newValidate(e), newTools(e), newCall(e), newFailures(e), newKey(e), newVersion(e))
	return root
}

func (e *env) configFlag(c *cobra.Command) {
	c.Flags().StringVarP(&e.config, "config", "c", "", "configuration `FILE` (.yaml, .json or .toml); without it, the embedded demo")
}

//go:embed demo.yaml
var demoConfig []byte

// load reads the configuration that the command line names, or the demo's.
func (e *env) load() (*configs.Config, map[string]upstream.ServeFunc, error) {
	o := configs.Options{Environ: e.settings(), Overrides: e.override, CheckRules: authz.CheckRules, Previous: e.previous}
	if e.config != "" {
		cfg, err := configs.Load(e.config, o)
		if err != nil {
			return nil, nil, fmt.Errorf("%s:\n%w", e.config, err)
		}
		return cfg, nil, nil
	}
	cfg, err := configs.Parse("demo.yaml", demoConfig, o)
	if err != nil {
		return nil, nil, err
	}
	embedded := make(map[string]upstream.ServeFunc)
	for _, s := range demo.Servers(time.Now) {
		embedded[s.ID] = s.Serve
	}
	return cfg, embedded, nil
}

// credentialVariable holds the API key or token with which stdio shows who its host is.
const credentialVariable = "HEADGATE_API_KEY"

// settings is the environment without the variables that are not settings.
func (e *env) settings() []string {
	return slices.DeleteFunc(slices.Clone(e.environ), func(kv string) bool {
		return strings.HasPrefix(kv, credentialVariable+"=") || strings.HasPrefix(kv, debugVariable+"=")
	})
}

func (e *env) credential() string { return e.variable(credentialVariable) }

func (e *env) logger(cfg *configs.Config) *slog.Logger {
	e.levels.Set(cfg.Log.Level, cfg.Log.PartLevels())
	log := telemetry.NewLogger(e.stderr, cfg.Log.Format, &e.levels)
	for _, w := range cfg.Warnings {
		log.Warn("configuration: " + w)
	}
	return log
}

// open loads the configuration and builds the gateway of it, exactly as serve does.
func (e *env) open() (*configs.Config, *gateway.Gateway, *slog.Logger, error) {
	cfg, embedded, err := e.load()
	if err != nil {
		return nil, nil, nil, err
	}
	log := e.logger(cfg)
	if e.serves {
		if err := e.openTelemetry(log); err != nil {
			return nil, nil, nil, err
		}
	}
	g, err := gateway.New(cfg, gateway.Options{Logger: log, Version: version(), Embedded: embedded, Telemetry: e.tel,
		Upstream: upstream.Options{OneClient: e.oneClient}})
	if err != nil {
		return nil, nil, nil, err
	}
	return cfg, g, log, nil
}

// running runs g beside f and waits for both: f decides when it is over.
func running(ctx context.Context, g *gateway.Gateway, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Run(ctx)
	}()
	err := f(ctx)
	cancel()
	<-done
	return err
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func newVersion(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(e.stdout, "headgate", version())
			return err
		},
	}
}

func newValidate(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "validate",
		Short: "Check a configuration without starting anything",
		Long: `Loads the configuration and builds the gateway of it exactly as serve does, without
connecting to anything. Every error is printed, each with the path of its key; the exit
status is 1 when there is one.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, _, _, err := e.open()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(e.stdout, "%s is valid: %s\n", e.config, count(len(cfg.Upstreams), "upstream"))
			return err
		},
	}
	c.Flags().StringVarP(&e.config, "config", "c", "", "configuration `FILE` (.yaml, .json or .toml)")
	_ = c.MarkFlagRequired("config")
	return c
}

// count writes a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
