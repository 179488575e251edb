package httpapi

import "net/http"

func (a answer) VisitListProjectionsResponse(w http.ResponseWriter) error     { return a.write(w) }
func (a answer) VisitGetProjectionResponse(w http.ResponseWriter) error       { return a.write(w) }
func (a answer) VisitConfigureProjectionResponse(w http.ResponseWriter) error { return a.write(w) }
func (a answer) VisitOperateProjectionResponse(w http.ResponseWriter) error   { return a.write(w) }
func (a answer) VisitListDeadLettersResponse(w http.ResponseWriter) error     { return a.write(w) }
