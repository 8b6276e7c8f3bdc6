package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/authz"
)

func newKey(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "key NAME",
		Short: "Make an API key, and the configuration entry with its digest",
		Long: `Prints a new API key and the entry of the configuration that accepts it. The key is shown
this once: the configuration holds its digest alone. Give it to its holder, who sends it as
"Authorization: Bearer KEY".`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			key, digest := authz.NewKey()
			_, err := fmt.Fprintf(e.stdout, `key: %s

auth:
  api_keys:
    - name: %q
      sha256: "%s"
      subject: %q
      teams: []
`, key, args[0], digest, args[0])
			return err
		},
	}
}
