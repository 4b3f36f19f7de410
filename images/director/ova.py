#!/usr/bin/python3
"""Write the OVA of the appliance: ova.py VERSION DISK.vmdk CAPACITY OUT.ova < properties.json.

The properties are those that `director setup properties` lists. CAPACITY is the disk's in bytes. An OVA is a tar with
the descriptor first, then the manifest, then the disk (DMTF DSP0243).
"""

import hashlib
import io
import json
import os
import sys
import tarfile
from xml.sax.saxutils import escape, quoteattr

DATA_GIB = 100


def items(cpus: int, memory_mib: int) -> str:
    """Return the virtual hardware: its types are those of CIM_ResourceAllocationSettingData."""
    rows = [
        (1, 3, f"{cpus} CPUs", f"<rasd:VirtualQuantity>{cpus}</rasd:VirtualQuantity>"),
        (2, 4, f"{memory_mib} MB of memory",
         "<rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits>"
         f"<rasd:VirtualQuantity>{memory_mib}</rasd:VirtualQuantity>"),
        (3, 6, "SCSI controller",
         "<rasd:Address>0</rasd:Address><rasd:ResourceSubType>VirtualSCSI</rasd:ResourceSubType>"),
        (4, 5, "IDE controller", "<rasd:Address>0</rasd:Address>"),
        (5, 17, "Root disk",
         "<rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:HostResource>ovf:/disk/root</rasd:HostResource>"
         "<rasd:Parent>3</rasd:Parent>"),
        (6, 17, "Data disk",
         "<rasd:AddressOnParent>1</rasd:AddressOnParent><rasd:HostResource>ovf:/disk/data</rasd:HostResource>"
         "<rasd:Parent>3</rasd:Parent>"),
        (7, 15, "CD-ROM for the OVF environment",
         "<rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:AutomaticAllocation>true</rasd:AutomaticAllocation>"
         "<rasd:Parent>4</rasd:Parent>"),
        (8, 10, "Network adapter",
         "<rasd:AutomaticAllocation>true</rasd:AutomaticAllocation><rasd:Connection>Network</rasd:Connection>"
         "<rasd:ResourceSubType>VmxNet3</rasd:ResourceSubType>"),
    ]
    out = []
    for number, kind, name, more in rows:
        fields = [f"<rasd:ElementName>{name}</rasd:ElementName>", f"<rasd:InstanceID>{number}</rasd:InstanceID>",
                  f"<rasd:ResourceType>{kind}</rasd:ResourceType>"]
        fields += more.replace("><rasd", ">\0<rasd").split("\0")
        # The schema wants the elements of an item in the order of their names.
        fields.sort(key=lambda f: f[len("<rasd:"):f.index(">")])
        out.append("      <Item>" + "".join(fields) + "</Item>")
    return "\n".join(out)


def properties(wanted: list) -> str:
    """Return the properties that the person who deploys the OVA is asked for."""
    out = []
    for p in wanted:
        secret = ' ovf:password="true"' if p["Secret"] else ""
        out.append(
            f'      <Property ovf:key={quoteattr(p["Key"])} ovf:type="string" ovf:userConfigurable="true"'
            f' ovf:value=""{secret}>'
            f'<Label>{escape(p["Label"])}</Label><Description>{escape(p["Help"])}</Description></Property>'
        )
    return "\n".join(out)


def descriptor(version: str, disk: str, size: int, capacity: int, wanted: list) -> str:
    """Return the text of director.ovf."""
    streamed = "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" \
xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData" \
xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData" \
xmlns:vmw="http://www.vmware.com/schema/ovf">
  <References><File ovf:href="{disk}" ovf:id="root" ovf:size="{size}"/></References>
  <DiskSection>
    <Info>The root disk, and a blank disk for all data</Info>
    <Disk ovf:capacity="{capacity}" ovf:diskId="root" ovf:fileRef="root" ovf:format="{streamed}"/>
    <Disk ovf:capacity="{DATA_GIB}" ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="data" \
ovf:format="{streamed}"/>
  </DiskSection>
  <NetworkSection>
    <Info>Networks</Info>
    <Network ovf:name="Network"><Description>Where nodes and people reach the director</Description></Network>
  </NetworkSection>
  <VirtualSystem ovf:id="director">
    <Info>The director of Kubernetes clusters</Info>
    <Name>director</Name>
    <OperatingSystemSection ovf:id="96" vmw:osType="debian11_64Guest"><Info>Debian 12</Info></OperatingSystemSection>
    <VirtualHardwareSection ovf:transport="com.vmware.guestInfo iso">
      <Info>2 CPUs, 4 GB of memory</Info>
      <System><vssd:ElementName>Virtual Hardware Family</vssd:ElementName><vssd:InstanceID>0</vssd:InstanceID>\
<vssd:VirtualSystemIdentifier>director</vssd:VirtualSystemIdentifier>\
<vssd:VirtualSystemType>vmx-14</vssd:VirtualSystemType></System>
{items(2, 4096)}
    </VirtualHardwareSection>
    <ProductSection ovf:class="director">
      <Info>First boot of the director</Info>
      <Product>Director</Product>
      <Version>{escape(version)}</Version>
{properties(wanted)}
    </ProductSection>
  </VirtualSystem>
</Envelope>
"""


def main() -> None:
    """Write the OVA."""
    version, disk, capacity, out = sys.argv[1:]
    name = os.path.basename(disk)
    text = descriptor(version, name, os.path.getsize(disk), int(capacity), json.load(sys.stdin)).encode()
    with open(disk, "rb") as f:
        sum_of_disk = hashlib.file_digest(f, "sha256").hexdigest()
    manifest = f"SHA256(director.ovf)= {hashlib.sha256(text).hexdigest()}\nSHA256({name})= {sum_of_disk}\n".encode()
    when = int(os.environ["SOURCE_DATE_EPOCH"])

    def entry(of: str, size: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(of)
        info.size, info.mtime, info.mode = size, when, 0o644
        return info

    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(entry("director.ovf", len(text)), io.BytesIO(text))
        tar.addfile(entry("director.mf", len(manifest)), io.BytesIO(manifest))
        with open(disk, "rb") as f:
            tar.addfile(entry(name, os.path.getsize(disk)), f)


main()
