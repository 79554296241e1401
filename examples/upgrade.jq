# Turns pools and blocks of a build before 0.1 into what this version has: see "A build
# before 0.1" in docs/operations.md. A block without nodeUID was made by hand: a pin.
def policy: if .mode then {policy: .mode} else {} end;
def word($field; $word): if .[$field] == 0 then {($field): $word} else {} end;
def renamed($from; $to): if .[$from] != null then {($to): .[$from]} else {} end;
{apiVersion: "v1", kind: "List", items: [.items[] | . as $object | .spec |
  if $object.kind == "PodIPPool" then
    {expand: (.expand // {} | renamed("minFree"; "minFreeAddresses")),
     reserved: [.reserved // [] | .[] | {cidr} + renamed("reason"; "description")],
     reclaim: (.reclaim // {} | policy + word("pressurePercent"; "Never")),
     maintenance: (.maintenance // {} | policy + word("blocksPerHour"; "Unlimited")),
     unselectedNodes: (.unselectedNodes // {} | policy)}
    | map_values(select(. != {} and . != [])) | select(. != {})
  elif .nodeUID then empty
  else {cidr, nodeName} end
  | {apiVersion: "cilium-pool.io/v1alpha1",
     kind: (if $object.kind == "PodIPPool" then "PodIPPool" else "PodIPPin" end),
     metadata: {name: $object.metadata.name}, spec: .}]}
