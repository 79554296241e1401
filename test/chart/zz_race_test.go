package chart
import ("testing";"fmt";"time")
func TestZZ(t *testing.T){
 b:=newBed(t)
 values := writeFile(t, fmt.Sprintf(installValues, 9870, 9871))
 k:=b.cluster.Dir()+"/kubeconfig"
 bad:=0
 for i:=range 12 {
  s:=time.Now()
  _,err:=tryHelm(t,"install",release,chart,"-f",values,"--namespace",namespace,"--kubeconfig",k)
  if err!=nil {bad++; t.Log(i,err)} else {t.Log(i,"ok",time.Since(s))}
  tryHelm(t,"uninstall",release,"--namespace",namespace,"--kubeconfig",k)
  for _,o:=range objects(t, helm(t,"template",chart)) { if o.GetKind()=="CustomResourceDefinition" { if err:=b.client.Delete(t.Context(),o);err!=nil{t.Log(err)} 
    b.eventually("gone",func() error { if b.client.Get(t.Context(),ckey(o.GetName()),o.DeepCopy())==nil {return fmt.Errorf("there")}; return nil}) } }
 }
 t.Log("failed",bad)
}
