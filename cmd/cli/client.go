package cli

import (
	"cmp"
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

// wholePage is the most that the server answers at once, for commands that follow the pages of a list.
const wholePage = 1000

// session is a command's connection to a server and its output.
type session struct {
	*client.Client
	output
}

// serverCommand completes a command that calls a server: it adds --server (environment
// BACKBONE_SERVER), --token (BACKBONE_TOKEN) and --json, and runs it with a session.
func serverCommand(cmd *cobra.Command, run func(ctx context.Context, s *session, args []string) error) *cobra.Command {
	var server, token string
	var asJSON bool
	serverFlags(cmd, &server, &token)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := connect(cmd, server, token, "client.token_missing", asJSON)
		if err != nil {
			return err
		}
		return run(cmd.Context(), &s, args)
	}
	return cmd
}

// connect returns the session of a command. Its requests give the reason for which personal
// data is read, of the environment variable BACKBONE_ACCESS_REASON. missing is the fault's code when there is no token.
func connect(cmd *cobra.Command, server, token, missing string, asJSON bool) (session, error) {
	if token == "" {
		return session{}, fault.New(fault.Unauthenticated, missing, "no access token; set BACKBONE_TOKEN or --token")
	}
	connection, err := client.New(client.Config{Server: server, Token: token, Reason: os.Getenv("BACKBONE_ACCESS_REASON")})
	return session{connection, newOutput(cmd, asJSON)}, err
}

// serverFlags adds the flags for the server and the access token.
func serverFlags(cmd *cobra.Command, server, token *string) {
	f := cmd.Flags()
	f.StringVar(server, "server", cmp.Or(os.Getenv("BACKBONE_SERVER"), "http://127.0.0.1:8080"), "server's URL (environment BACKBONE_SERVER)")
	tokenFlag(cmd, token)
	f.Lookup("server").DefValue = "http://127.0.0.1:8080"
}

func tokenFlag(cmd *cobra.Command, token *string) {
	cmd.Flags().StringVar(token, "token", os.Getenv("BACKBONE_TOKEN"), "access token (environment BACKBONE_TOKEN)")
	cmd.Flags().Lookup("token").DefValue = "" // the help must not print the token of the environment
}

// legalEntityFlag adds --legal-entity with its default from the environment.
func legalEntityFlag(cmd *cobra.Command, to *string, usage string) {
	cmd.Flags().StringVar(to, "legal-entity", os.Getenv("BACKBONE_LEGAL_ENTITY"), usage)
	cmd.Flags().Lookup("legal-entity").DefValue = ""
}
