package cli

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// clientFlags adds the flags of commands that talk to a server. The result fills in
// where the command writes.
func clientFlags(cmd *cobra.Command) func() ClientOptions {
	var o ClientOptions
	f := cmd.Flags()
	f.StringVar(&o.Server, "server", envOr("BACKBONE_SERVER", "http://127.0.0.1:8080"), "server's URL (environment BACKBONE_SERVER)")
	f.StringVar(&o.Token, "token", os.Getenv("BACKBONE_TOKEN"), "access token (environment BACKBONE_TOKEN)")
	f.BoolVar(&o.JSON, "json", false, "print the answer as JSON")
	f.Lookup("token").DefValue = "" // help shows nobody's token
	f.Lookup("server").DefValue = "http://127.0.0.1:8080"
	return func() ClientOptions {
		o.Out, o.Err, o.Terminal = cmd.OutOrStdout(), cmd.ErrOrStderr(), IsTerminal(os.Stderr)
		return o
	}
}

// ClientOptions are the flags of commands that talk to a server.
type ClientOptions struct {
	Server   string
	Token    string
	JSON     bool // print the server's answer
	Out      io.Writer
	Err      io.Writer // progress
	Terminal bool      // Err is one
}

func (o ClientOptions) connect() (*httpclient.Client, error) {
	if o.Token == "" {
		return nil, fault.New(fault.Unauthenticated, "client.token_missing", "no access token; set BACKBONE_TOKEN or --token")
	}
	return httpclient.New(httpclient.Config{Server: o.Server, Token: o.Token})
}
