package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// processor hands ended spans to an exporter from a queue that is bounded: what finds it full is dropped and
// counted, so that an exporter which is slow or gone costs neither time nor memory.
type processor struct {
	sdktrace.SpanProcessor
	max     int64
	waiting *atomic.Int64 // in the queue or being exported
	full    func()
}

func newProcessor(e sdktrace.SpanExporter, r *Errors, dropped metric.Int64Counter) *processor {
	limit := queueSize()
	p := &processor{max: int64(limit), waiting: new(atomic.Int64)}
	count := func(why string) func(n int) {
		with := []metric.AddOption{metric.WithAttributes(keyReason.String(why))}
		return func(n int) { dropped.Add(context.Background(), int64(n), with...) }
	}
	full := count("queue_full")
	p.full = func() { full(1) }
	p.SpanProcessor = sdktrace.NewBatchSpanProcessor(&exporter{SpanExporter: e, reporter: r, waiting: p.waiting, lost: count("export_failed")},
		sdktrace.WithMaxQueueSize(limit))
	return p
}

func queueSize() int {
	if n, err := strconv.Atoi(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE")); err == nil && n > 0 {
		return n
	}
	return sdktrace.DefaultMaxQueueSize
}

// OnEnd queues a span, or drops it.
func (p *processor) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if p.waiting.Add(1) > p.max {
		p.waiting.Add(-1)
		p.full()
		return
	}
	p.SpanProcessor.OnEnd(s)
}

// exporter reports what an exporter cannot export, and counts it.
type exporter struct {
	sdktrace.SpanExporter
	reporter *Errors
	waiting  *atomic.Int64
	lost     func(n int)
}

// ExportSpans never returns an error: it has been dealt with.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer e.waiting.Add(-int64(len(spans)))
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.lost(len(spans))
		e.reporter.failed("traces", err)
		return nil
	}
	e.reporter.worked("traces")
	return nil
}

// Errors takes what goes wrong with exporters and logs it: once for each signal, and again only when it has worked in
// between and some time has gone. It is an otel.ErrorHandler.
type Errors struct {
	log    *slog.Logger
	masked *strings.Replacer // credentials of exporters

	mu   sync.Mutex // guards seen
	seen map[string]*trouble
}

type trouble struct {
	failing bool
	told    time.Time
}

// tellAgain is how long a kind of trouble that comes and goes is not told of again.
const tellAgain = 10 * time.Minute

// NewErrors makes an Errors that masks the credentials which the standard variables hold.
func NewErrors(log *slog.Logger) *Errors {
	var pairs []string
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"} {
		for header := range strings.SplitSeq(os.Getenv(name), ",") {
			_, v, _ := strings.Cut(header, "=")
			plain, err := url.PathUnescape(v)
			if err != nil {
				plain = v
			}
			for _, s := range []string{v, plain} {
				if s = strings.TrimSpace(s); len(s) > 3 {
					pairs = append(pairs, s, "***")
				}
			}
		}
	}
	return &Errors{log: log, masked: strings.NewReplacer(pairs...), seen: make(map[string]*trouble)}
}

func (r *Errors) failed(kind string, err error) {
	r.mu.Lock()
	t := r.seen[kind]
	if t == nil {
		t = &trouble{}
		r.seen[kind] = t
	}
	tell := !t.failing && (t.told.IsZero() || time.Since(t.told) > tellAgain)
	t.failing = true
	if tell {
		t.told = time.Now()
	}
	r.mu.Unlock()
	level := slog.LevelDebug
	if tell {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "telemetry is not exported; this is told once", "signal", kind, "error", r.describe(err))
}

func (r *Errors) worked(kind string) {
	r.mu.Lock()
	t := r.seen[kind]
	again := t != nil && t.failing
	if again {
		t.failing = false
	}
	r.mu.Unlock()
	if again {
		r.log.Info("telemetry is exported again", "signal", kind)
	}
}

var anyURL = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"']*`)

// describe words an error of an exporter without what may be secret in it: user, path and query of its URL, its
// headers, and the body of an answer.
func (r *Errors) describe(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	text, _, _ := strings.Cut(r.masked.Replace(err.Error()), "body: ")
	// What a collector says over gRPC stands behind desc; what is known on this side begins as here.
	if head, said, found := strings.Cut(text, " desc = "); found && !strings.HasPrefix(said, "connection error:") && !strings.HasPrefix(said, "context ") {
		text = head
	}
	s := anyURL.ReplaceAllStringFunc(text, func(s string) string {
		at, err := url.Parse(s)
		if err != nil {
			return "***"
		}
		return at.Scheme + "://" + at.Host
	})
	return clip(s, 300)
}

// Handle takes an error of the OpenTelemetry libraries.
func (r *Errors) Handle(err error) {
	kind := "sdk"
	if strings.Contains(err.Error(), "metrics") {
		kind = "metrics"
	}
	r.failed(kind, err)
}
