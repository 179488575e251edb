package cli

import (
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
)

func apCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "ap", Short: "Work with accounts payable"}
	cmd.AddCommand(ImportCommand())
	return cmd
}

// ImportCommand is `ap import`, over the HTTP API.
func ImportCommand() *cobra.Command {
	return cli.ImportCommand(func(server, token string) (cli.API, error) {
		return client.New(client.Config{Server: server, Token: token, Attempts: 1}) // the import tries again by itself
	})
}
