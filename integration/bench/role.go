package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"

	"github.com/headgate/headgate/internal/telemetry"
)

// play is what a process of the benchmark does: it serves on a free port and tells of its runtime on another, says
// which, and goes on until its input ends.
func play(ctx context.Context, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var handler http.Handler
	switch o.role {
	case "server":
		handler = newServer()
	case "stdio":
		tools, err := strconv.Atoi(o.target)
		if err != nil {
			return err
		}
		return newServer().serveLines(os.Stdin, os.Stdout, serverPath(tools))
	case "proxy":
		target, err := url.Parse("http://" + o.target)
		if err != nil {
			return err
		}
		handler = newProxy(target)
	case "sdk":
		gateway, stop, err := newSDKGateway(ctx, o.target)
		if err != nil {
			return err
		}
		defer stop()
		handler = gateway
	case "collector":
		handler = http.HandlerFunc(collect)
	default:
		return fmt.Errorf("unknown role %q", o.role)
	}
	served := make(chan error, 2)
	var servers []*http.Server
	for _, h := range []http.Handler{handler, telemetry.Profiles()} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		srv := &http.Server{Handler: h}
		servers = append(servers, srv)
		go func() { served <- srv.Serve(l) }()
		fmt.Println(l.Addr())
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	for _, srv := range servers {
		_ = srv.Close()
		<-served
	}
	return err
}

// collect is the receiver of traces: it takes everything and keeps nothing.
func collect(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
}

func newProxy(target *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{Transport: newTransport(), Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The server answers so fast that the answer can overtake the end of the request's body in the
		// proxy; without full duplex net/http then closes that body under the transport's hands.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	})
}

// newTransport keeps as many connections as the most concurrent workload has.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 256
	return t
}
