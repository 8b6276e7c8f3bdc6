package gateway

import "strings"

// aliasScheme begins the URIs that name a resource of one server, whoever else has the same:
// headgate://ID/URI is URI at the server ID.
const aliasScheme = "headgate://"

func aliasOf(server, uri string) string { return aliasScheme + server + "/" + uri }

// readAlias takes an alias apart.
func readAlias(alias string) (server, uri string, ok bool) {
	rest, ok := strings.CutPrefix(alias, aliasScheme)
	if !ok {
		return "", "", false
	}
	server, uri, ok = strings.Cut(rest, "/")
	return server, uri, ok && uri != ""
}
