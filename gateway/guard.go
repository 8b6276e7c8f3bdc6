package gateway

import (
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/configs"
)

// allowed checks Host and Origin against DNS rebinding (2026-07-28, basic/transports/streamable-http,
// "Security & Endpoint"). A page of a foreign site that has its name point at this machine still
// carries that name in Host, and its own origin in Origin.
func allowed(cfg *configs.Config, r *http.Request) (ok bool, why string) {
	if configs.IsLoopback(cfg.Listen) && !loopbackHost(r.Host) && !slices.ContainsFunc(cfg.AllowedHosts, sameHost(r.Host)) {
		return false, "this host name is not allowed; add it to allowed_hosts"
	}
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) == 0:
		return true, ""
	case len(origins) > 1:
		return false, "more than one Origin header"
	case originAllowed(cfg, origins[0]):
		return true, ""
	}
	return false, "this origin is not allowed; add it to allowed_origins"
}

func originAllowed(cfg *configs.Config, origin string) bool {
	if slices.ContainsFunc(cfg.AllowedOrigins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && configs.IsLoopback(cfg.Listen) && loopbackHost(u.Host)
}

func loopbackHost(host string) bool {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
		name = h
	}
	name = strings.Trim(name, "[]")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

// sameHost matches an allowed host, with a port when it names one and any port when it does not.
func sameHost(host string) func(string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	return func(a string) bool { return strings.EqualFold(a, host) || strings.EqualFold(a, name) }
}

// cors answers a browser page of an allowed origin.
func cors(w http.ResponseWriter, r *http.Request) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
		h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
		h.Set("Access-Control-Max-Age", "600")
	}
}

// acceptable is what a client's Accept header lets Headgate answer with.
type acceptable struct{ json, stream bool }

// accepts reads an Accept header. Clients must name both types, but many name one or none; each gets
// what it can read.
func accepts(r *http.Request) acceptable {
	var a acceptable
	silent := true // no header, or one that says nothing
	for _, v := range r.Header.Values("Accept") {
		if v == "application/json, text/event-stream" {
			a.json, a.stream, silent = true, true, false // as the specification has it, and nearly all clients
			continue
		}
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			silent = false
			t, params, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			if q, err := strconv.ParseFloat(params["q"], 64); err == nil && q == 0 {
				continue
			}
			switch t {
			case "*/*":
				a.json, a.stream = true, true
			case "application/json", "application/*":
				a.json = true
			case "text/event-stream", "text/*":
				a.stream = true
			}
		}
	}
	if silent {
		return acceptable{json: true, stream: true}
	}
	return a
}
