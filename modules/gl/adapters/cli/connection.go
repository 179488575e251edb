package cli

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

// connection is the server, the caller and the legal entity of a command.
type connection struct{ server, token, legalEntity string }

func (c *connection) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.server, "server", cmp.Or(os.Getenv("BACKBONE_SERVER"), "http://127.0.0.1:8080"), "server's URL (environment BACKBONE_SERVER)")
	flags.Lookup("server").DefValue = "http://127.0.0.1:8080"
	flags.StringVar(&c.token, "token", os.Getenv("BACKBONE_TOKEN"), "access token (environment BACKBONE_TOKEN)")
	flags.Lookup("token").DefValue = "" // the help must not print the token of the environment
	flags.StringVar(&c.legalEntity, "legal-entity", os.Getenv("BACKBONE_LEGAL_ENTITY"), "code of the legal entity (required; environment BACKBONE_LEGAL_ENTITY)")
	flags.Lookup("legal-entity").DefValue = ""
}

func (c *connection) open() (*client.Client, error) {
	switch {
	case c.legalEntity == "":
		return nil, usageError{fault.New(fault.Invalid, "request.parameter_missing", "no legal entity; set BACKBONE_LEGAL_ENTITY or --legal-entity")}
	case c.token == "":
		return nil, usageError{fault.New(fault.Unauthenticated, "client.token_missing", "no access token; set BACKBONE_TOKEN or --token")}
	}
	api, err := client.New(client.Config{Server: c.server, Token: c.token, Reason: os.Getenv("BACKBONE_ACCESS_REASON")})
	if err != nil {
		return nil, usageError{err}
	}
	return api, nil
}
