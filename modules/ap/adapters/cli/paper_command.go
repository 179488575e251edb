package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// PaperAPI is what `backbone ap paper` calls of a server; *client.Client implements it.
type PaperAPI interface {
	ReadStream(ctx context.Context, streamType, id string, params client.ReadStreamParams, options ...client.Option) (client.StreamPage, error)
	GetPaper(ctx context.Context, id, legalEntity string) (client.PaperFile, error)
}

// PaperCommand is `backbone ap paper`.
func PaperCommand(newAPI func(server, token, reason string) (PaperAPI, error)) *cobra.Command {
	var server, token, legalEntity, reason, output string
	var attachment int
	cmd := &cobra.Command{
		Use:   "paper [flags] DOCUMENT",
		Short: "Download the file of an invoice or credit memo as it was received, or an attachment",
		Long: `Write the file from which a document was imported, or one of its attachments, to a new
file. DOCUMENT is the id of the invoice or credit memo. The access is recorded.`,
		Example: `  backbone ap paper --legal-entity DEMF 01M7XG62RNBTFVXQKRCWYT78CR -o invoice.xml
  backbone ap paper --legal-entity DEMF 01M7XG62RNBTFVXQKRCWYT78CR --attachment 1 -o timesheet.pdf`,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := newAPI(flagOrEnv(server, EnvServer), flagOrEnv(token, EnvToken), reason)
			if err != nil {
				return err
			}
			entity := flagOrEnv(legalEntity, EnvLegalEntity)
			paper, err := findPaper(cmd.Context(), api, entity, args[0], attachment)
			if err != nil {
				return err
			}
			file, err := api.GetPaper(cmd.Context(), paper, entity)
			if err != nil {
				return err
			}
			if output == "" {
				output = file.Name
			}
			if err := writeNewFile(output, file.Bytes); err != nil {
				return withoutPath(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %d bytes, paper %s\n", output, file.MediaType, len(file.Bytes), paper)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&server, "server", "", "base URL of the server (environment "+EnvServer+")")
	flags.StringVar(&token, "token", "", "access token (environment "+EnvToken+", which other users of this machine cannot see)")
	flags.StringVar(&legalEntity, "legal-entity", "", "code of the legal entity that was billed (required; environment "+EnvLegalEntity+")")
	flags.StringVar(&reason, "reason", "", "why, for the access log; auditors need it")
	flags.IntVar(&attachment, "attachment", 0, "number of the attachment to write, from 1 (default the document itself)")
	flags.StringVarP(&output, "output", "o", "", "file to write, which must not exist (default a neutral name in this folder)")
	return cmd
}

// findPaper finds the paper that a document names last, or that of its n-th attachment.
func findPaper(ctx context.Context, api PaperAPI, legalEntity, document string, attachment int) (string, error) {
	var last error
	for _, kind := range []contract.Kind{contract.Invoice, contract.CreditMemo} {
		page, err := api.ReadStream(ctx, kind.StreamType(), document, client.ReadStreamParams{LegalEntity: legalEntity, Direction: "backward"})
		if fault.KindOf(err) == fault.NotFound {
			last = err
			continue
		}
		if err != nil {
			return "", err
		}
		for _, e := range page.Events {
			var data struct {
				SourceDocument contract.SourceDocument `json:"source_document"`
				Attachments    []contract.Attachment   `json:"attachments"`
			}
			encoded, err := json.Marshal(e.Data)
			if err != nil || json.Unmarshal(encoded, &data) != nil {
				continue
			}
			paper := data.SourceDocument.Paper
			if attachment != 0 {
				if paper = ""; attachment > 0 && attachment <= len(data.Attachments) {
					paper = string(data.Attachments[attachment-1].Paper)
				}
			}
			if paper != "" {
				return paper, nil
			}
		}
		if attachment != 0 {
			return "", fault.New(fault.NotFound, kind.Code("paper_not_found"), "this document has no attachment with this number that is kept by itself; its list is attachments of GET /api/ap/invoices/{id}")
		}
		return "", fault.New(fault.NotFound, kind.Code("paper_not_found"), "this document names no paper: it was entered by hand, or imported by a release that kept none")
	}
	return "", last
}

func writeNewFile(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
