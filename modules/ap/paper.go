package ap

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// subjectVendor is the type of the subjects under whose keys the papers of vendors are sealed.
const subjectVendor = "vendor"

// checkPaper requires that the paper which a document names is kept, and that the erasure of the
// document's vendor reaches it.
func checkPaper(ctx context.Context, s module.State, k contract.Kind, d *contract.Document) error {
	if d.SourceDocument == nil || d.SourceDocument.Paper == "" {
		return nil
	}
	kept, err := module.Load[*paper.Paper](ctx, s, paper.Stream(d.SourceDocument.Paper))
	if err != nil {
		return err
	}
	if subject, _ := shredding.NewSubject(subjectVendor, d.VendorID); !kept.IsKept || kept.Subject != subject {
		return fault.New(fault.NotFound, k.Code("paper_not_found"),
			"no paper of this vendor with this id is kept in the legal entity; keep it first (POST /api/papers with the vendor as subject) or leave it out").WithField("/source_document/paper")
	}
	return nil
}
