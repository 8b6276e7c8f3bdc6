package configs

import (
	"net/url"
	"slices"
	"strings"
)

// Secrets returns the values of an upstream's settings that must not show in a text: those of headers (with and
// without the scheme), of env (whole and line by line), the client secret of oauth, credentials and query values of
// the URL, and arguments that came from ${env:…} or ${file:…} or follow a flag with the name of a credential. Some may be short words; who
// looks for them in a text decides which are long enough. Order and repetitions mean nothing.
func (u *Upstream) Secrets() []string {
	var out []string
	for _, v := range u.Headers {
		out = append(out, v)
		if _, credentials, ok := strings.Cut(v, " "); ok {
			out = append(out, strings.TrimSpace(credentials))
		}
	}
	if s := u.OAuth.ClientSecret; s != "" {
		out = append(out, s, url.QueryEscape(s))
	}
	for _, v := range u.Env {
		out = append(out, v)
		for line := range strings.Lines(v) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	if at, err := url.Parse(u.URL); err == nil {
		if password, ok := at.User.Password(); ok {
			out = append(out, password)
		}
		for _, values := range at.Query() {
			out = append(out, values...)
		}
	}
	for i, arg := range u.Args {
		flag, value, assigned := strings.Cut(arg, "=")
		switch {
		case u.hidden[index("args", i)]:
			out = append(out, arg)
			if assigned {
				out = append(out, value)
			}
		case assigned && credentialName(flag):
			out = append(out, value)
		case i > 0 && strings.HasPrefix(u.Args[i-1], "-") && !strings.Contains(u.Args[i-1], "=") && credentialName(u.Args[i-1]):
			out = append(out, arg)
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// Hostname returns the host of the URL without a port; "" for a stdio upstream.
func (u *Upstream) Hostname() string {
	at, err := url.Parse(u.URL)
	if err != nil {
		return ""
	}
	return at.Hostname()
}
