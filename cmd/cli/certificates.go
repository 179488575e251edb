package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// verifyCertificateCommand exits with 0 for a genuine certificate, 1 for one that is not, and 2
// when the check could not be made.
func verifyCertificateCommand() *cobra.Command {
	var o certificateOptions
	cmd := &cobra.Command{
		Use:   "verify-certificate FILE",
		Short: "Check a certificate of erasure or redaction without a server",
		Long: "verify-certificate proves that a certificate was signed with a key and not changed by a\n" +
			"byte since, and prints what it says. It needs neither server nor network. The key is\n" +
			"published by the operator of the installation; get it another way than the certificate.\n\n" +
			"Exit code 0: genuine. 1: changed, or signed with another key. 2: nothing was checked.",
		Example: "  backbone verify-certificate erasure.json --key receipts.example.org+f82bea8e+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c\n" +
			"  backbone verify-certificate - --key receipts.vkey --json < erasure.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.File, o.In, o.output = args[0], cmd.InOrStdin(), newOutput(cmd, o.json)
			genuine, err := verifyCertificate(o)
			switch {
			case !genuine:
				return exitError{1, err}
			case err != nil:
				return exitError{2, err}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{2, err} })
	cmd.Flags().StringArrayVar(&o.Keys, "key", nil, "verifier key, or a file or folder with some; repeat it for keys of other years (required)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the verdict as JSON")
	return cmd
}

// maxCertificateBytes bounds the file that is read. Every certificate is smaller.
const maxCertificateBytes = 16 << 20

// certificateOptions are the flags of `backbone verify-certificate`.
type certificateOptions struct {
	File string   // "-" is In
	Keys []string // verifier keys, or files with one per line
	In   io.Reader
	output
}

// verifyCertificate checks a certificate of erasure or redaction offline and prints its content.
// genuine is false for a certificate that was changed or signed with another key; the error then
// names the difference. An error with genuine true means that the check could not be made, for
// lack of a file or a key.
func verifyCertificate(o certificateOptions) (genuine bool, err error) {
	keys, err := verifierKeys(o.Keys)
	if err != nil {
		return true, err
	}
	document, err := readLimited(o.File, o.In, maxCertificateBytes)
	if err != nil {
		return true, fault.New(fault.Invalid, "erasure.certificate_unreadable", "the certificate cannot be read; check the file").WithCause(err)
	}
	var certificate interface{ Summary() string }
	if shredding.CertificateFormat(document) == redaction.CertificateFormat {
		certificate, err = redaction.VerifyCertificate(document, signednote.Opener{}, keys...)
	} else {
		certificate, err = erasure.VerifyCertificate(document, signednote.Opener{}, keys...)
	}
	if fault.CodeOf(err) == "note.key_invalid" {
		return true, err
	}
	if o.json {
		verdict := map[string]any{"genuine": err == nil}
		if err == nil {
			verdict["certificate"] = certificate
		} else {
			verdict["code"] = fault.CodeOf(err)
		}
		if writeErr := printJSON(o.out, verdict); writeErr != nil {
			return true, writeErr
		}
		return err == nil, err
	}
	if err != nil {
		fmt.Fprintln(o.out, "Not genuine: the certificate is not as it was signed, or not signed with this key.")
		return false, err
	}
	_, err = fmt.Fprintf(o.out, "%s\nGenuine: signed with the key given, and not a byte was changed since.\n", certificate.Summary())
	return true, err
}

// verifierKeys returns the keys; an argument that is no key names a file of keys.
func verifierKeys(given []string) ([]string, error) {
	var keys []string
	for _, k := range given {
		if strings.Count(k, "+") >= 2 {
			keys = append(keys, strings.TrimSpace(k))
			continue
		}
		files := []string{k}
		if isFolder(k) {
			files, _ = filepath.Glob(filepath.Join(k, "[^.]*")) // the pattern is well formed but for the name of a folder
		}
		for _, file := range files {
			content, err := readLimited(file, nil, maxCertificateBytes)
			if err != nil {
				return nil, fault.New(fault.Invalid, "note.key_unreadable", "the verifier key is neither <name>+<hash>+<key> nor a file or folder that can be read; check --key").WithCause(err)
			}
			keys = append(keys, strings.Fields(string(content))...)
		}
	}
	if len(keys) == 0 {
		return nil, fault.New(fault.Invalid, "note.key_missing", "signatures are checked with the public key of the signer; name it with --key")
	}
	return keys, nil
}
