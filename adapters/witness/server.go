package witness

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// maxRequest bounds a request: 63 hashes and a checkpoint with some signatures.
const maxRequest = 64 << 10

// Witness decides what is signed, as globallog.Witness of package application/globallog does.
type Witness interface {
	AddCheckpoint(request []byte, now time.Time) (lines []byte, err error)
	Newest(origin string) (note []byte, err error)
	Origins() []string
}

// Server answers requests of logs and their readers. It knows callers by the signatures of their checkpoints only.
type Server struct {
	witness Witness
	logger  *slog.Logger
	names   map[string]string // origins by name
}

// NewServer makes a Server. logger receives a line for each request to sign.
func NewServer(w Witness, logger *slog.Logger) *Server {
	s := &Server{witness: w, logger: logger, names: map[string]string{}}
	for _, origin := range w.Origins() {
		s.names[OriginName(origin)] = origin
	}
	return s
}

// Handler returns the routes.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add-checkpoint", s.addCheckpoint)
	mux.HandleFunc("GET /{origin}/checkpoint", s.newest)
	return mux
}

func (s *Server) addCheckpoint(w http.ResponseWriter, r *http.Request) {
	request, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "the request is too large, or broke off", http.StatusBadRequest)
		return
	}
	lines, err := s.witness.AddCheckpoint(request, time.Now())
	s.logger.InfoContext(r.Context(), "checkpoint", "code", fault.CodeOf(err), "from", r.RemoteAddr)
	if err == nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(lines) // the caller asks again
		return
	}
	f, _ := fault.As(err)
	switch fault.CodeOf(err) {
	case "witness.size_differs":
		w.Header().Set("Content-Type", "text/x.tlog.size")
		w.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(w, "%d\n", f.Actual)
	case "witness.log_unknown":
		http.Error(w, f.Detail, http.StatusNotFound)
	case "note.not_verified":
		http.Error(w, f.Detail, http.StatusForbidden)
	case "global_log.inconsistent":
		http.Error(w, f.Detail, http.StatusUnprocessableEntity)
	case "global_log.proof_malformed", "global_log.checkpoint_malformed":
		http.Error(w, f.Detail, http.StatusBadRequest)
	default:
		http.Error(w, "the witness cannot sign now; its log says why", http.StatusInternalServerError)
	}
}

func (s *Server) newest(w http.ResponseWriter, r *http.Request) {
	note, err := s.witness.Newest(s.names[r.PathValue("origin")])
	switch {
	case err != nil:
		http.Error(w, "the witness cannot read its folder", http.StatusInternalServerError)
	case note == nil:
		http.Error(w, "this witness has signed no checkpoint of the log", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(note) // the caller asks again
	}
}
