package otlptest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// patience is how long a test waits for what must arrive.
const patience = 30 * time.Second

// Receiver collects what is exported to it.
type Receiver struct {
	// GRPC and HTTP are the endpoints, as OTEL_EXPORTER_OTLP_ENDPOINT takes them.
	GRPC, HTTP string

	mu      sync.Mutex // guards the fields below
	spans   []Span
	metrics []Metric
	moved   chan struct{} // closed and replaced whenever something arrives
}

// Start runs a receiver until the test ends.
func Start(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{moved: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	tracepb.RegisterTraceServiceServer(s, traceServer{r: r})
	metricspb.RegisterMetricsServiceServer(s, metricsServer{r: r})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l)
	}()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, q *http.Request) {
		receive(w, q, &tracepb.ExportTraceServiceRequest{}, &tracepb.ExportTraceServiceResponse{}, r.traces)
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, q *http.Request) {
		receive(w, q, &metricspb.ExportMetricsServiceRequest{}, &metricspb.ExportMetricsServiceResponse{}, r.take)
	})
	front := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.Stop()
		<-served
		front.CloseClientConnections()
		front.Close()
	})
	r.GRPC, r.HTTP = "http://"+l.Addr().String(), front.URL
	return r
}

func receive[In, Out proto.Message](w http.ResponseWriter, q *http.Request, in In, out Out, f func(In)) {
	body, err := io.ReadAll(q.Body)
	if err == nil {
		err = proto.Unmarshal(body, in)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f(in)
	b, _ := proto.Marshal(out)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(b)
}

type traceServer struct {
	tracepb.UnimplementedTraceServiceServer
	r *Receiver
}

func (s traceServer) Export(_ context.Context, q *tracepb.ExportTraceServiceRequest) (*tracepb.ExportTraceServiceResponse, error) {
	s.r.traces(q)
	return &tracepb.ExportTraceServiceResponse{}, nil
}

type metricsServer struct {
	metricspb.UnimplementedMetricsServiceServer
	r *Receiver
}

func (s metricsServer) Export(_ context.Context, q *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	s.r.take(q)
	return &metricspb.ExportMetricsServiceResponse{}, nil
}

func (r *Receiver) tell(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.moved)
	r.moved = make(chan struct{})
}

// Spans are those that have arrived so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...)
}

// Metrics are the names of the metrics that have arrived so far, with their points.
func (r *Receiver) Metrics() []Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Metric(nil), r.metrics...)
}

// Await waits until cond is true of what has arrived.
func (r *Receiver) Await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		r.mu.Lock()
		moved := r.moved
		r.mu.Unlock()
		if cond() {
			return
		}
		select {
		case <-moved:
		case <-end.C:
			t.Fatalf("waiting for %s: in vain; there are %d spans", what, len(r.Spans()))
		}
	}
}
