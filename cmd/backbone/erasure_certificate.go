package main

import (
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

// verifyCertificateCommand ends with code 0 for a genuine certificate, 1 for one that
// is not, and 2 when nothing could be checked.
func verifyCertificateCommand() *cobra.Command {
	var o wire.CertificateOptions
	cmd := &cobra.Command{
		Use:   "verify-certificate FILE",
		Short: "Check a certificate of erasure without a server",
		Long: "verify-certificate proves that a certificate was signed with a key and not changed by a\n" +
			"byte since, and prints what it says. It needs neither server nor network. The key is\n" +
			"published by whoever runs the installation; get it another way than the certificate.\n\n" +
			"Exit code 0: genuine. 1: changed, or signed with another key. 2: nothing was checked.",
		Example: "  backbone verify-certificate erasure.json --key receipts.example.org+f82bea8e+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c\n" +
			"  backbone verify-certificate - --key receipts.vkey --json < erasure.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return exit{2, err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.File, o.In, o.Out = args[0], cmd.InOrStdin(), cmd.OutOrStdout()
			genuine, err := wire.VerifyCertificate(o)
			switch {
			case !genuine:
				return exit{1, err}
			case err != nil:
				return exit{2, err}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit{2, err} })
	cmd.Flags().StringArrayVar(&o.Keys, "key", nil, "verifier key, or a file with some; repeat it for keys of other years (required)")
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print the verdict as JSON")
	return cmd
}
