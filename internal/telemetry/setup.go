package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/attribute"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const scopeName = "github.com/headgate/headgate"

// Options are what a [Telemetry] needs beside the standard variables.
type Options struct {
	// Version is Headgate's own.
	Version string
	// Errors takes what goes wrong with exporters; nil discards it.
	Errors *Errors
	// Console is what the console exporters write to; nil means the standard error output. It is never the standard
	// output, which may be a client's.
	Console io.Writer
}

// Telemetry is what Headgate says itself through. All methods may be called on nil, by many goroutines at a time.
type Telemetry struct {
	instruments
	tracer   trace.Tracer // nil when no exporter of spans is asked for
	registry *prometheus.Registry
	reporter *Errors
	stop     []func(context.Context) error
}

// Open sets up traces and metrics as the standard variables of OpenTelemetry ask for it. Without any, nothing is
// exported, and metrics can be read from Handler alone. An exporter that cannot be set up is logged and left out;
// none is connected to before there is something to export. The error is of variables that nothing can be made of.
// Shutdown has to be called.
func Open(ctx context.Context, o Options) (*Telemetry, error) {
	if o.Errors == nil {
		o.Errors = NewErrors(slog.New(slog.DiscardHandler))
	}
	if o.Console == nil {
		o.Console = os.Stderr
	}
	t := &Telemetry{registry: prometheus.NewRegistry(), reporter: o.Errors}
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "headgate"), attribute.String("service.version", o.Version)),
		resource.WithTelemetrySDK(),
		resource.WithFromEnv()) // last, so that it wins
	if err != nil {
		t.reporter.failed("resource", err)
	}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := t.openMetrics(ctx, o, res); err != nil {
		return nil, fmt.Errorf("setting up metrics: %w", err)
	}
	t.openTraces(ctx, o, res)
	return t, nil
}

// maxSeries bounds the attribute sets of one instrument.
const maxSeries = 20_000

func (t *Telemetry) openMetrics(ctx context.Context, o Options, res *resource.Resource) error {
	text, err := promexporter.New(promexporter.WithRegisterer(t.registry), promexporter.WithoutScopeInfo(),
		promexporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return err
	}
	opts := []sdkmetric.Option{sdkmetric.WithReader(text), sdkmetric.WithResource(res), sdkmetric.WithCardinalityLimit(maxSeries)}
	more, err := metricReader(ctx, asked("METRICS", t.reporter), o)
	if err != nil {
		t.reporter.failed("metrics", err)
	} else if more != nil {
		opts = append(opts, sdkmetric.WithReader(more))
	}
	p := sdkmetric.NewMeterProvider(opts...)
	t.stop = append(t.stop, p.Shutdown)
	t.instruments, err = newInstruments(p.Meter(scopeName))
	return err
}

func metricReader(ctx context.Context, name string, o Options) (sdkmetric.Reader, error) {
	switch name {
	case "", "prometheus":
		return nil, nil // Prometheus is there, at /metrics of the admin listener
	case "console":
		e, err := stdoutmetric.New(stdoutmetric.WithWriter(o.Console))
		if err != nil {
			return nil, err
		}
		return sdkmetric.NewPeriodicReader(e), nil
	}
	return autoexport.NewMetricReader(ctx)
}

func (t *Telemetry) openTraces(ctx context.Context, o Options, res *resource.Resource) {
	name := asked("TRACES", t.reporter)
	if name == "" {
		return
	}
	e, err := spanExporter(ctx, name, o)
	if err != nil {
		t.reporter.failed("traces", err)
		return
	}
	// The sampler is that of the variables.
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(newProcessor(e, t.reporter, t.dropped)), sdktrace.WithResource(res))
	t.stop = append(t.stop, p.Shutdown)
	t.tracer = p.Tracer(scopeName)
}

func spanExporter(ctx context.Context, name string, o Options) (sdktrace.SpanExporter, error) {
	if name == "console" {
		return stdouttrace.New(stdouttrace.WithWriter(o.Console))
	}
	return autoexport.NewSpanExporter(ctx)
}

// asked is the exporter that the variables ask for, or "". autoexport by itself exports to an address of this
// machine when nobody asks, which Headgate does not.
func asked(signal string, r *Errors) string {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return ""
	}
	name := strings.TrimSpace(os.Getenv("OTEL_" + signal + "_EXPORTER"))
	switch {
	case name == "none":
		return ""
	case name == "otlp", name == "console", name == "prometheus" && signal == "METRICS":
		return name
	case name != "":
		r.failed(strings.ToLower(signal), errors.New("OTEL_"+signal+"_EXPORTER does not name one exporter of otlp, console, none"))
		return ""
	}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != "" {
		return "otlp"
	}
	return ""
}

// Handler serves the metrics as text for Prometheus.
func (t *Telemetry) Handler() http.Handler {
	if t == nil {
		return http.NotFoundHandler()
	}
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Shutdown exports what is left and ends what Open started, within ctx.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	var all []error
	for _, stop := range slices.Backward(t.stop) {
		all = append(all, stop(ctx))
	}
	return errors.Join(all...)
}
