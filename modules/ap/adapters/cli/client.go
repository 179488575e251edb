package cli

import (
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
)

// Command is `backbone ap`.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "ap", Short: "Work with accounts payable"}
	cmd.AddCommand(ImportCommand(func(server, token string) (API, error) {
		return client.New(client.Config{Server: server, Token: token, Attempts: 1}) // the import itself retries
	}))
	cmd.AddCommand(ImportStatusCommand(func(server, token string) (StatusAPI, error) {
		return client.New(client.Config{Server: server, Token: token, Attempts: 1})
	}))
	cmd.AddCommand(PaperCommand(func(server, token, reason string) (PaperAPI, error) {
		return client.New(client.Config{Server: server, Token: token, Reason: reason})
	}))
	return cmd
}
