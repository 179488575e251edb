package cli

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/csvinvoice"
)

// Environment variables that replace flags.
const (
	EnvServer      = "BACKBONE_SERVER"
	EnvToken       = "BACKBONE_TOKEN"
	EnvLegalEntity = "BACKBONE_LEGAL_ENTITY"
)

// ImportCommand is `backbone ap import`. newAPI makes the client of a server from its base
// URL and a token. Errors of the command are *ExitError.
func ImportCommand(newAPI func(server, token string) (API, error)) *cobra.Command {
	var c importFlags
	cmd := &cobra.Command{
		Use:   "import [flags] PATH...",
		Short: "Submit invoices of suppliers (UBL, CII, Factur-X, CSV)",
		Long: `Read invoices and credit notes in UBL 2.1 or CII, also embedded in a PDF file
(Factur-X, ZUGFeRD 2), check them by the rules of EN 16931, and submit each to
accounts payable. The import registers vendors that the server does not know. A
PATH is a file, or a folder whose *.xml and *.pdf files are read in name order,
including those of its subfolders.

With --mapping the files are CSV files (*.csv in folders). The mapping says what
each column means; rows with the same kind, seller and number are one document.

Each file is handled independently and ends as
  accepted    it was submitted; holds that block its approval or payment are named
  duplicate   the same document was submitted before, by an import or another caller
  refused     it breaks a rule, or its number is taken by one with another total
  pending     its intent waits for the approval of another person
  failed      there was no usable answer; run the command again
Running it twice submits nothing twice.

Exit code: 0 nothing refused, 1 something refused, 2 could not run or not finish.`,
		Example: `  export BACKBONE_SERVER=http://127.0.0.1:8080 BACKBONE_TOKEN=bbk_...
  backbone ap import --legal-entity DEMF inbox/
  backbone ap import --legal-entity DEMF --json inbox/ > report.json
  backbone ap import --legal-entity DEMF --mapping freight.yaml freight-march.csv
  backbone ap import --legal-entity DEMF --posting-date 2026-04-01 late/invoice-4711.xml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("name at least one file or folder; backbone ap import --help shows examples", nil)
			}
			return nil
		},
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args, newAPI)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usageError(err.Error()+"; backbone ap import --help lists the flags", err)
	})
	flags := cmd.Flags()
	flags.StringVar(&c.server, "server", "", "base URL of the server (environment "+EnvServer+")")
	flags.StringVar(&c.token, "token", "", "access token (environment "+EnvToken+", which other users of this machine cannot see)")
	flags.StringVar(&c.legalEntity, "legal-entity", "", "code of the legal entity that was billed (required; environment "+EnvLegalEntity+")")
	flags.StringVar(&c.postingDate, "posting-date", "", "date that decides the period, as 2026-03-31 (default each document's date)")
	flags.StringVar(&c.mapping, "mapping", "", "YAML file that says what the columns of CSV files mean; the files are read as CSV")
	flags.IntVar(&c.parallel, "parallel", DefaultParallel, fmt.Sprintf("files processed concurrently, 1 to %d", MaxParallel))
	flags.BoolVar(&c.json, "json", false, "write the report as JSON")
	return cmd
}

type importFlags struct {
	server, token, legalEntity, postingDate, mapping string
	parallel                                         int
	json                                             bool
}

func (c *importFlags) run(cmd *cobra.Command, paths []string, newAPI func(server, token string) (API, error)) error {
	options, server, token, err := c.options()
	if err != nil {
		return err
	}
	if c.postingDate != "" {
		date, err := event.ParseDate(c.postingDate)
		if err != nil {
			return usageError("--posting-date is a date such as 2026-03-31", err)
		}
		options.PostingDate = &date
	}
	extensions := invoiceFiles
	if c.mapping != "" {
		mapping, err := readMapping(c.mapping)
		if err != nil {
			return err
		}
		options.Mapping, extensions = mapping, csvFiles
	}
	files, err := FindFiles(paths, extensions...)
	if err != nil {
		return usageError(err.Error(), err)
	}
	api, err := newAPI(server, token)
	if err != nil {
		return usageError(reason(err), err)
	}

	ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer release()
	finished := func() {}
	if isTerminal(cmd.ErrOrStderr()) {
		total := len(files)
		if options.Mapping != nil {
			total = 0 // a CSV file has any number of documents
		}
		p := newProgress(cmd.ErrOrStderr(), total)
		options.Progress, finished = p.step, p.close
	}
	report := Import(ctx, api, files, options)
	finished()

	write := report.WriteTable
	if c.json {
		write = report.WriteJSON
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return usageError("the report cannot be written: "+withoutPath(err).Error()+"; "+report.Totals.summary(), err)
	}
	return report.Err()
}

// options checks the flags that imports share.
func (c *importFlags) options() (o Options, server, token string, err error) {
	o = Options{LegalEntity: flagOrEnv(c.legalEntity, EnvLegalEntity), Parallel: c.parallel}
	server, token = flagOrEnv(c.server, EnvServer), flagOrEnv(c.token, EnvToken)
	switch {
	case server == "":
		err = usageError("no server; set "+EnvServer+" or --server to its URL", nil)
	case token == "":
		err = usageError("no access token; set "+EnvToken+" or --token", nil)
	case o.LegalEntity == "":
		err = usageError("no legal entity; name the one that was billed with --legal-entity or "+EnvLegalEntity, nil)
	case c.parallel < 1 || c.parallel > MaxParallel:
		err = usageError(fmt.Sprintf("--parallel is 1 to %d", MaxParallel), nil)
	}
	return o, server, token, err
}

// readMapping reads the mapping of CSV files. A wrong one ends the command before anything is sent.
func readMapping(path string) (*csvinvoice.Mapping, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usageError("the mapping "+printable(path)+" cannot be read: "+withoutPath(err).Error(), err)
	}
	defer f.Close()
	mapping, err := csvinvoice.ParseMapping(f)
	if refusal, ok := fault.As(err); ok {
		return nil, usageError(strings.TrimSpace(printable(path)+" "+refusal.Field)+": "+printable(refusal.Detail)+" ("+refusal.Code+")", err)
	}
	if err != nil {
		return nil, usageError("the mapping "+printable(path)+" cannot be read: "+withoutPath(err).Error(), err)
	}
	return mapping, nil
}

// flagOrEnv returns the flag's value, else that of the environment variable.
func flagOrEnv(flag, variable string) string {
	if flag == "" {
		flag = os.Getenv(variable)
	}
	return strings.TrimSpace(flag)
}

func usageError(text string, err error) error {
	return &ExitError{code: ExitUnfinished, text: text, err: err}
}
