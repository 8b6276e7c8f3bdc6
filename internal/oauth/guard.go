package oauth

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// guard keeps Headgate from being sent to places inside its own network by URLs that it has learned.
type guard struct {
	allowed map[string]bool // host or host:port, in lower case
}

func newGuard(allowed []string) *guard {
	g := &guard{allowed: make(map[string]bool, len(allowed))}
	for _, h := range allowed {
		g.allowed[strings.ToLower(h)] = true
	}
	return g
}

// allows reports whether the configuration opens a host.
func (g *guard) allows(host, port string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	bracketed := host
	if strings.Contains(host, ":") {
		bracketed = "[" + host + "]"
	}
	return g.allowed[host] || g.allowed[bracketed] || g.allowed[bracketed+":"+port]
}

// errPrivate says that a name or an address leads to where learned URLs must not lead.
var errPrivate = errors.New("it leads to a loopback, link-local or private address; if that is meant, name its host in allowed_private_hosts")

// check refuses a learned URL by its looks. Where its host leads is seen when it is dialled.
func (g *guard) check(u *url.URL) error {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	switch open := g.allows(u.Hostname(), port); {
	case u.Hostname() == "" || u.User != nil:
		return errors.New("not a URL that can be followed")
	case u.Scheme == "https" || u.Scheme == "http" && open:
	default:
		return errors.New("not an https URL; http is accepted for hosts in allowed_private_hosts only")
	}
	return nil
}

// dial connects to a host of a learned URL. The address is looked at when the connection is made and not
// before, so that a name which changes its mind in between gains nothing.
func (g *guard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if !g.allows(host, port) {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil || !public(at.Addr()) {
				return errPrivate
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, addr)
}

const dialTimeout = 10 * time.Second

// client makes a client for learned URLs. It uses no proxy: a proxy would look names up by itself, from
// where it stands, and what it finds could not be checked.
func (g *guard) client() (*http.Client, *http.Transport) {
	tr := &http.Transport{DialContext: g.dial, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10}
	return &http.Client{Transport: tr, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if req.Method != http.MethodGet || via[0].Method != http.MethodGet {
			return http.ErrUseLastResponse
		}
		if len(via) > 3 {
			return &redirectError{errors.New("there are too many")}
		}
		if err := g.check(req.URL); err != nil {
			return &redirectError{err}
		}
		return nil
	}}, tr
}

// redirectError says why a redirect is not followed.
type redirectError struct{ err error }

func (e *redirectError) Error() string { return "a redirect is not followed: " + e.err.Error() }
func (e *redirectError) Unwrap() error { return e.err }

// reserved are the blocks of addresses that are not public and that netip has no predicate for.
var reserved = [...]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // shared by carriers
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),          // IPv4-compatible
	netip.MustParsePrefix("64:ff9b:1::/48"), // translation inside a network
	netip.MustParsePrefix("100::/64"),
	netip.MustParsePrefix("2001::/23"), // Teredo among others
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("fec0::/10"),
}

var (
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4  = netip.MustParsePrefix("2002::/16")
	anyIPv6 = netip.MustParsePrefix("::/0")
)

// public reports whether an address can be one of the open internet. Forms that carry an IPv4 address
// count as what they carry.
func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
		return false
	}
	for _, p := range reserved {
		if p.Contains(a) {
			return false
		}
	}
	if anyIPv6.Contains(a) {
		b := a.As16()
		switch {
		case nat64.Contains(a):
			return public(netip.AddrFrom4([4]byte(b[12:16])))
		case sixTo4.Contains(a):
			return public(netip.AddrFrom4([4]byte(b[2:6])))
		}
	}
	return true
}
