package authz

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/cenkalti/backoff/v5"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/document"
)

const (
	// keyRefresh is how often an issuer's keys are read again: how long a key that was rotated away
	// may still be accepted. A key that is new is fetched when it is first seen.
	keyRefresh = 5 * time.Minute
	// keyTimeout bounds one fetch.
	keyTimeout = 10 * time.Second
	// keyWait bounds how long a token waits for keys that may verify it.
	keyWait = 5 * time.Second
	// keyPace and keyBurst bound the fetches that tokens can cause, since anybody can make up a key id.
	keyPace  = 10 * time.Second
	keyBurst = 3
	// minRSA is the least size of an RSA key, in bits (RFC 7518, section 3.3).
	minRSA = 2048
)

// errKeysStale says that keys were wanted anew and could not be had.
var errKeysStale = errors.New("the issuer's keys cannot be fetched")

// run finds the issuer's keys, however long that takes, and keeps them fresh until ctx ends.
func (i *issuer) run(ctx context.Context) {
	pause := backoff.NewExponentialBackOff()
	pause.MaxInterval = time.Minute
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			close(i.over)
			return
		case <-timer.C:
		case <-i.wake:
		}
		err := i.fetch(ctx)
		if ctx.Err() == nil && err != nil {
			effect := "its tokens are not accepted meanwhile"
			if i.keys.Load() != nil {
				effect = "those known stay in use"
			}
			i.log.Warn("the issuer's keys cannot be fetched; "+effect, "error", err.Error())
		}
		i.finish(err)
		if err == nil {
			pause.Reset()
			timer.Reset(i.refresh)
		} else {
			timer.Reset(min(pause.NextBackOff(), i.refresh))
		}
	}
}

// again has the keys fetched once more and waits for that. It reports false if it is too soon.
func (i *issuer) again() (bool, error) {
	i.mu.Lock()
	f := i.pending
	if f == nil {
		if !i.pace.Allow() {
			i.mu.Unlock()
			return false, nil
		}
		f = &fetching{done: make(chan struct{})}
		i.pending = f
		select {
		case i.wake <- struct{}{}:
		default:
		}
	}
	i.mu.Unlock()

	timer := time.NewTimer(keyWait)
	defer timer.Stop()
	select {
	case <-f.done:
		return true, f.err
	case <-timer.C:
	case <-i.over:
	}
	return true, errKeysStale
}

// fetching is a fetch that tokens wait for. err is set before done is closed.
type fetching struct {
	done chan struct{}
	err  error
}

func (i *issuer) finish(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pending != nil {
		if err != nil {
			i.pending.err = errKeysStale
		}
		close(i.pending.done)
		i.pending = nil
	}
}

// fetch reads the key set anew. Keys that are not in it any more are gone with it.
func (i *issuer) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	at := i.cfg.JWKSURL
	if at == "" {
		var err error
		if at, err = i.discover(ctx); err != nil {
			return err
		}
	}
	var doc struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := i.get(ctx, at, &doc); err != nil {
		return fmt.Errorf("reading the key set: %w", err)
	}
	if doc.Keys == nil {
		return errors.New("reading the key set: the document has no keys")
	}
	set := jwkset.NewMemoryStorage()
	usable := 0
	for n, raw := range *doc.Keys {
		key, err := publicKey(raw)
		if err == nil {
			err = set.KeyWrite(ctx, key)
		}
		if err != nil {
			// One odd key must not take the others with it.
			i.log.Debug("a key of the issuer is not used", "number", n, "error", err.Error())
			continue
		}
		usable++
	}
	if usable == 0 {
		i.log.Warn("the issuer's key set has no usable key; its tokens are not accepted")
	}
	kf, err := keyfunc.New(keyfunc.Options{Ctx: context.WithoutCancel(ctx), Storage: set, UseWhitelist: []jwkset.USE{jwkset.UseSig, ""}})
	if err != nil {
		return fmt.Errorf("reading the key set: %w", err)
	}
	f := jwt.Keyfunc(kf.Keyfunc)
	i.keys.Store(&f)
	return nil
}

func publicKey(raw json.RawMessage) (jwkset.JWK, error) {
	var m jwkset.JWKMarshal
	if err := json.Unmarshal(raw, &m); err != nil {
		return jwkset.JWK{}, errors.New("it is not a JSON Web Key")
	}
	key, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return jwkset.JWK{}, err
	}
	if pub, ok := key.Key().(*rsa.PublicKey); ok && pub.N.BitLen() < minRSA {
		return jwkset.JWK{}, fmt.Errorf("an RSA key of %d bits is too short", pub.N.BitLen())
	}
	return key, nil
}

// discover reads the issuer's metadata (OpenID Connect Discovery 1.0; RFC 8414), which must name the
// very issuer that is configured.
func (i *issuer) discover(ctx context.Context) (string, error) {
	base, err := url.Parse(i.cfg.Issuer)
	if err != nil {
		return "", errors.New("discovery: the issuer is not a URL")
	}
	path := strings.TrimSuffix(base.Path, "/")
	places := []string{path + "/.well-known/openid-configuration"}
	for _, name := range []string{"oauth-authorization-server", "openid-configuration"} {
		if p := "/.well-known/" + name + path; p != places[0] {
			places = append(places, p)
		}
	}
	var errs []error
	for _, p := range places {
		u := *base
		u.Path, u.RawPath = p, ""
		at, err := i.metadata(ctx, base.Scheme, u.String())
		if err == nil {
			return at, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", p, err))
	}
	return "", fmt.Errorf("discovery: %w", errors.Join(errs...))
}

func (i *issuer) metadata(ctx context.Context, scheme, at string) (string, error) {
	var doc struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := i.get(ctx, at, &doc); err != nil {
		return "", err
	}
	if doc.Issuer != i.cfg.Issuer {
		return "", errors.New("the document is of another issuer")
	}
	u, err := url.Parse(doc.JWKSURI)
	switch {
	case doc.JWKSURI == "":
		return "", errors.New("the document names no jwks_uri")
	case err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != scheme || !configs.IsLoopback(u.Hostname())):
		return "", errors.New("the document's jwks_uri is not an https URL")
	}
	return doc.JWKSURI, nil
}

// get reads a JSON document of the issuer. Nothing of the document gets into the error.
func (i *issuer) get(ctx context.Context, at string, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return errors.New("not a URL")
	}
	req.Header.Set("Accept", "application/json, application/jwk-set+json")
	resp, err := i.client.Do(req)
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err // without the URL, which may hold a key of its own
	}
	if err != nil {
		return err
	}
	return document.Read(resp, to)
}

// secured is the client with one rule more: no redirect leads from https to http.
func secured(client *http.Client) *http.Client {
	c := *client
	inner := c.CheckRedirect
	c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
			return errors.New("a redirect from https to http")
		}
		if inner != nil {
			return inner(req, via)
		}
		if len(via) >= 10 {
			return errors.New("too many redirects")
		}
		return nil
	}
	return &c
}

func newPace() *rate.Limiter { return rate.NewLimiter(rate.Every(keyPace), keyBurst) }
