package pipeline

import (
	"context"
	"encoding/json"
	"regexp"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// maxFilesAtOnce bounds the files that a node builds at the same time, since one may read tens of
// thousands of streams. Further requests are refused: file.busy.
const maxFilesAtOnce = 2

// fileParameter bounds a parameter before it becomes the id of a stream.
var fileParameter = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

// FileRequest asks for a file that a module declares.
type FileRequest struct {
	Path        string // "ap/payment-runs/{run_id}/file"
	LegalEntity ports.LegalEntity
	Params      map[string]string
	Reader      module.Reader // the caller, as a reader of personal data
}

// BuildFile builds a file for a caller. The module's policy decides by role before anything is
// read, and on the facts of the built file before it leaves. Personal values in it are recorded
// with the reader at the end, all at once. Faults:
//
//	file.not_found          no module declares the file
//	file.parameter_invalid  Invalid
//	intent.forbidden        Forbidden: the role
//	file.forbidden          Forbidden: the caller does not read a class of personal data in it
//	file.busy               Unavailable: the node builds as many files as it may
//
// and those of the module, its policy, module.Opener and the record of disclosures.
func (s *Service) BuildFile(ctx context.Context, caller Caller, req FileRequest) (module.BuiltFile, error) {
	f, ok := s.Catalog.Files()[req.Path]
	if !ok {
		return module.BuiltFile{}, fault.New(fault.NotFound, "file.not_found", "there is no such file; GET /api/openapi.yaml lists them")
	}
	for name, value := range req.Params {
		if !fileParameter.MatchString(value) || shredding.CheckIdentifier(name, value) != nil {
			return module.BuiltFile{}, fault.New(fault.Invalid, "file.parameter_invalid",
				"parameter %q is an id of up to 128 letters, digits, dots, colons, dashes and underscores; correct it", name).WithField(name)
		}
	}
	params, err := json.Marshal(req.Params)
	if err != nil {
		return module.BuiltFile{}, err
	}
	now := event.Micros(s.Clock.Now())
	a := &attempt{
		service: s, caller: caller, entity: req.LegalEntity, payload: params, dryRun: true,
		intentType: module.IntentType{Type: f.Type, Opens: f.Opens, Policy: f.Policy},
		stored: intent.Intent{
			ID: s.IDs.NewID(now), Partition: req.LegalEntity.Partition, LegalEntity: req.LegalEntity.Code, Type: f.Type,
			Actor: caller.Actor, PersonID: caller.Principal.PersonID, Roles: caller.Principal.Roles,
		},
		fileReader: &fileReader{caller: req.Reader, counts: map[openedClass]int{}},
	}
	built, err := a.buildFile(ctx, f, now)
	return built, a.redactError(err, false)
}

func (a *attempt) buildFile(ctx context.Context, f module.File, now time.Time) (module.BuiltFile, error) {
	if err := a.checkMaySubmit(ctx); err != nil {
		return module.BuiltFile{}, err
	}
	select {
	case a.service.files <- struct{}{}:
		defer func() { <-a.service.files }()
	default:
		return module.BuiltFile{}, fault.New(fault.Unavailable, "file.busy", "this server builds as many files as it may; ask again in a moment").
			WithRetryAfter(retryBusyFiles)
	}
	in := a.plannerInput(now)
	built, err := f.Build(ctx, in, a.newView(false))
	if err != nil {
		return module.BuiltFile{}, err
	}
	if len(built.Content) > module.MaxFileBytes {
		return module.BuiltFile{}, fault.New(fault.Internal, "file.too_large", "the file has %d bytes, and %d are allowed; report this defect", len(built.Content), module.MaxFileBytes)
	}
	answer, err := a.askPolicy(ctx, built.Facts, in.Today)
	if err != nil {
		return module.BuiltFile{}, err
	}
	if len(answer.Needs) > 0 {
		return module.BuiltFile{}, fault.New(fault.Forbidden, "policy.undecided", "the policy asks for an approval, and a file cannot wait for one; tell an administrator")
	}
	if err := a.fileReader.disclose(ctx); err != nil {
		return module.BuiltFile{}, err
	}
	return built, nil
}

// retryBusyFiles is the Retry-After of file.busy.
const retryBusyFiles = 2 * time.Second

// fileReader is the caller of a file as a reader of personal data. It counts what is opened, so
// that the file is one record of the access log for each person and class.
type fileReader struct {
	caller module.Reader
	order  []openedClass
	counts map[openedClass]int
}

// openedClass is a class of personal data of one person.
type openedClass struct {
	partition event.PartitionID
	subject   shredding.Subject
	class     shredding.Class
}

func (r *fileReader) add(opened []module.Opened) {
	for _, o := range opened {
		key := openedClass{o.Partition, o.Subject, o.Class}
		if r.counts[key] == 0 {
			r.order = append(r.order, key)
		}
		r.counts[key] += o.Values
	}
}

// disclose records what was opened. On an error the file must not leave.
func (r *fileReader) disclose(ctx context.Context) error {
	if len(r.order) == 0 {
		return nil
	}
	opened := make([]module.Opened, len(r.order))
	for i, o := range r.order {
		opened[i] = module.Opened{Partition: o.partition, Subject: o.subject, Class: o.class, Values: r.counts[o]}
	}
	return r.caller.Disclose(ctx, opened)
}
